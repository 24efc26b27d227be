//! Parses what a text asks of the player: the partner, and the length of the talk.

/// The number of rounds if none is given.
const ROUNDS: u32 = 6;
/// A conversation has at most forty messages.
const MAX_ROUNDS: u32 = 20;

/// Numbers of rounds that are written as words; the first one is 1.
const NUMBERS: [&str; 12] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
];

/// The agent that a text names: `@worker-b`, `talk to worker-b`, `worker-bと…`, and, where a talk is
/// asked for, `with worker-b`.
pub(super) fn partner(text: &str) -> Option<String> {
    let after = |mark: &str| {
        let (_, rest) = text.split_once(mark)?;
        let name: String = rest.chars().take_while(|c| is_of_name(*c)).collect();
        named(&name)
    };
    let before = |mark: &str| {
        text.match_indices(mark).find_map(|(at, _)| {
            let end = &text[..at];
            let length: usize =
                end.chars().rev().take_while(|c| is_of_name(*c)).map(char::len_utf8).sum();
            named(&end[end.len() - length..])
        })
    };
    after("@")
        .or_else(|| after("talk to "))
        .or_else(|| after("Talk to "))
        .or_else(|| before("さんと"))
        .or_else(|| before("と"))
        .or_else(|| rounds(text).and_then(|_| after(" with ")))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn named(name: &str) -> Option<String> {
    let name = name.trim_end_matches(['.', '-']);
    (!name.is_empty()).then(|| name.to_owned())
}

/// The number of exchanges that a purpose asks for; None if a single message is enough.
pub(super) fn rounds(purpose: &str) -> Option<u32> {
    let lower = purpose.to_lowercase();
    let counted = ["往復", " round", " exchange"].iter().find_map(|mark| {
        let (before, _) = lower.split_once(mark)?;
        let digits: Vec<_> = before.chars().rev().map_while(digit).collect();
        let number = digits.iter().rev().fold(0_u32, |sum, d| sum.saturating_mul(10) + d);
        let word = before.rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let named = NUMBERS.iter().zip(1..).find_map(|(name, n)| (*name == word).then_some(n));
        (number > 0).then_some(number).or(named)
    });
    let games = ["しりとり", "shiritori", "word chain", "discuss", "話し合"];
    let is_talk = games.iter().any(|game| lower.contains(game));
    let rounds = counted.or(is_talk.then_some(ROUNDS))?;
    Some(rounds.clamp(1, MAX_ROUNDS))
}

/// A digit in half or full width.
fn digit(c: char) -> Option<u32> {
    let wide = u32::from(c).checked_sub(u32::from('０')).filter(|digit| *digit < 10);
    c.to_digit(10).or(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_is_found_where_a_text_names_one() {
        for (text, name) in [
            ("@worker-b に聞く", Some("worker-b")),
            ("Please talk to worker-b.", Some("worker-b")),
            ("worker-bと6往復しりとりをしてほしい", Some("worker-b")),
            ("さっと worker_2さんと話す", Some("worker_2")),
            ("報告書をまとめる", None),
            ("ひとりで考える", None),
            ("tidy up", None),
            ("@", None),
            ("Play six rounds of shiritori with worker-b", Some("worker-b")),
            ("Play six rounds of shiritori with worker-b.", Some("worker-b")),
            ("Discuss the plan with bob, then end", Some("bob")),
            ("Write the minutes with care", None),
        ] {
            assert_eq!(partner(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn rounds_are_counted_or_six_and_a_notice_has_none() {
        for (text, wanted) in [
            ("6往復しりとり", Some(6)),
            ("１２往復", Some(12)),
            ("play 3 rounds", Some(3)),
            ("99 rounds of it", Some(20)),
            ("Play six rounds of shiritori with worker-b", Some(6)),
            ("play Three rounds", Some(3)),
            ("twelve exchanges", Some(12)),
            ("a few rounds", None),
            ("しりとりをして", Some(6)),
            ("Discuss the plan", Some(6)),
            ("Play a word chain", Some(6)),
            ("tell them that lunch is ready", None),
            ("往復書簡を送る", None),
        ] {
            assert_eq!(rounds(text), wanted, "{text}");
        }
    }
}
