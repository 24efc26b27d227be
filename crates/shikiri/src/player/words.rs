//! A word chain, in Japanese (Shiritori) or English: each word begins with the last sound, or letter, of
//! the previous one. A word that was used before loses, and so does one that ends in ん.

const FIRST: &str = "りんご";
const FIRST_ENGLISH: &str = "apple";

const WORDS: &[&str] = &[
    "りんご",
    "ごりら",
    "らっぱ",
    "ぱせり",
    "りす",
    "すいか",
    "からす",
    "すずめ",
    "めだか",
    "かめ",
    "めがね",
    "ねこ",
    "こま",
    "まくら",
    "らくだ",
    "だるま",
    "まつり",
    "りか",
    "かさ",
    "さくら",
    "さかな",
    "なす",
    "すし",
    "しか",
    "かに",
    "にわとり",
    "とり",
    "とけい",
    "いぬ",
    "ぬりえ",
    "えき",
    "きつね",
    "ねずみ",
    "みみ",
    "みず",
    "ずこう",
    "うし",
    "しま",
    "まど",
    "どあ",
    "あひる",
    "るす",
    "すな",
    "なつ",
    "つき",
    "きのこ",
    "こあら",
    "らじお",
    "おに",
    "にじ",
    "じしゃく",
    "くるま",
    "まめ",
    "くも",
    "もり",
    "もち",
    "ちず",
    "つくえ",
    "えび",
    "びわ",
    "わに",
    "にもつ",
    "つみき",
    "けむり",
    "たぬき",
    "たいこ",
    "てがみ",
    "いるか",
    "かえる",
    "るーる",
    "はな",
    "はし",
    "ひつじ",
    "ふね",
    "ほし",
    "へちま",
    "やま",
    "ゆき",
    "よる",
    "れいぞうこ",
    "ろうそく",
    "そら",
    "せみ",
    "のり",
    "むし",
    "ぬの",
    "ひよこ",
    "へび",
    "ゆか",
    "がっこう",
    "げた",
    "ぐみ",
    "ごま",
    "ざる",
    "ばら",
    "ぶた",
    "べる",
    "ぼうし",
    "ぽすと",
    "ぴあの",
    "うみ",
    "みかづき",
    "あめ",
    "おの",
    "ぎざぎざ",
    "でぐち",
    "ぜろ",
    "ぞう",
    "づけ",
    "ぷらす",
    "ぺりか",
    "をかし",
];

#[rustfmt::skip]
const ENGLISH: &[&str] = &[
    "apple", "elephant", "tiger", "rabbit", "turtle", "eagle", "earth", "hat", "table", "engine",
    "elbow", "window", "water", "river", "rocket", "train", "needle", "egg", "garden", "nest",
    "tree", "ear", "radio", "owl", "lamp", "pencil", "lemon", "nose", "emerald", "dog", "grape",
    "envelope", "echo", "orange", "east", "tea", "acorn", "night", "tunnel", "leaf", "flute",
    "energy", "yard", "drum", "map", "paper", "root", "tower", "rain", "nail", "lion", "north",
    "hill", "lake", "kite", "eel", "ladder", "rose", "salt", "tent", "toast", "tomato", "oven",
    "net", "trail", "ship", "planet", "toy", "yellow", "west", "towel",
];

/// The first word, if a purpose asks for this game.
pub(super) fn first_word(purpose: &str) -> Option<&'static str> {
    let lower = purpose.to_lowercase();
    let is_japanese = purpose.contains("しりとり") || lower.contains("shiritori");
    let is_english = lower.contains("word chain");
    is_japanese.then_some(FIRST).or(is_english.then_some(FIRST_ENGLISH))
}

/// Whether a text is a move: one short word in kana, or a word of the English list. Any other English
/// word may be a message.
pub(super) fn is_word(text: &str) -> bool {
    let text = text.trim();
    if ENGLISH.contains(&text) {
        return true;
    }
    let is_kana = |c: char| matches!(c, 'ぁ'..='ゖ' | 'ァ'..='ヶ' | 'ー');
    (1..=12).contains(&text.chars().count()) && text.chars().all(is_kana)
}

/// The next word, or why the game is over. `said` has the earlier words.
pub(super) fn answer(previous: &str, said: &[String]) -> Result<&'static str, &'static str> {
    let previous = previous.trim();
    let Some(sound) = last_sound(previous) else { return Err("that was no word") };
    if sound == 'ん' {
        return Err("a word that ends in ん loses");
    }
    if said.iter().any(|word| word == previous) {
        return Err("that word was said before");
    }
    let is_free = |word: &&&str| **word != previous && !said.iter().any(|one| one == **word);
    let words = if sound.is_ascii() { ENGLISH } else { WORDS };
    let follows = |sound: char| words.iter().filter(is_free).filter(move |w| w.starts_with(sound));
    // Picks the word with the most possible answers, so that the game continues.
    let ways = |word: &&&str| last_sound(word).map_or(0, |sound| follows(sound).count());
    let next = follows(sound).max_by_key(ways);
    next.copied().ok_or("no word comes to mind")
}

/// The first sound of the next word: full size, in hiragana, without long vowel marks.
fn last_sound(word: &str) -> Option<char> {
    let last = word.chars().rev().find(|c| *c != 'ー')?;
    let hiragana = match last {
        'ァ'..='ヶ' => char::from_u32(u32::from(last) - 0x60).unwrap_or(last),
        other => other,
    };
    let small = "ぁぃぅぇぉゃゅょっ".chars().position(|c| c == hiragana);
    small.map_or(Some(hiragana), |index| "あいうえおやゆよつ".chars().nth(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_keep_the_rules() {
        for (at, word) in WORDS.iter().enumerate() {
            assert!(is_word(word), "{word}");
            assert_ne!(last_sound(word), Some('ん'), "{word}");
            assert!(!WORDS[..at].contains(word), "{word} is there twice");
        }
    }

    #[test]
    fn two_players_go_on_for_as_long_as_a_conversation_may() {
        for purpose in ["6往復しりとり", "Play a word chain"] {
            let mut said = vec![first_word(purpose).unwrap().to_owned()];
            while said.len() < 40 {
                let (previous, before) = said.split_last().unwrap();
                let next =
                    answer(previous, before).unwrap_or_else(|why| panic!("{why} after {said:?}"));
                assert!(is_word(next), "{next}");
                assert_eq!(last_sound(previous), next.chars().next(), "{said:?} {next}");
                assert!(!said.contains(&next.to_owned()), "{next} again");
                said.push(next.to_owned());
            }
        }
        assert_eq!(first_word("Discuss the plan"), None);
    }

    #[test]
    fn losing_ends_the_game() {
        let said = ["りんご".to_owned(), "ごりら".to_owned()];
        assert!(answer("らいおん", &said).unwrap_err().contains('ん'));
        assert!(answer("ごりら", &said).unwrap_err().contains("before"));
        assert!(answer("コーヒー", &said).unwrap().starts_with('ひ'));
        assert!(answer("でんしゃ", &said).unwrap().starts_with('や'));
        assert!(is_word("りんご") && !is_word("6往復しりとり") && !is_word("hello"));
    }
}
