//! Ids as a person reads and types them: the end of an id that no other one in sight has.

use std::collections::BTreeSet;

/// The shortest ending that may be typed.
pub(crate) const LEAST_TYPED: usize = 4;
/// The shortest ending that is shown. Among 10,000 ids, one in 1,600 shares it with another.
const LEAST_SHOWN: usize = 6;
/// The digits after the prefix of an id that was not chosen by a person.
const DIGITS: usize = 32;

/// Whether an id was made by the program: a kind, `_`, and 32 digits. Only those are shortened,
/// because others are names.
pub(crate) fn is_minted(id: &str) -> bool {
    id.rsplit_once('_').is_some_and(|(kind, digits)| {
        !kind.is_empty()
            && digits.len() == DIGITS
            && digits.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
    })
}

/// How many characters at the end tell all of these ids apart.
fn telling_length(ids: &[&str]) -> usize {
    let all: BTreeSet<&str> = ids.iter().copied().filter(|id| is_minted(id)).collect();
    let ending = |id: &&str, length: usize| id[id.len() - length..].to_owned();
    let tells = |length: &usize| {
        all.iter().map(|id| ending(id, *length)).collect::<BTreeSet<_>>().len() == all.len()
    };
    (LEAST_SHOWN..DIGITS).find(tells).unwrap_or(DIGITS)
}

/// Shortens each id to an ending that tells it from the others here. Names stay whole.
pub(crate) fn shorten(ids: &[&str]) -> Vec<String> {
    let length = telling_length(ids);
    let short = |id: &&str| match is_minted(id) {
        true => id[id.len() - length..].to_owned(),
        false => (*id).to_owned(),
    };
    ids.iter().map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_long_as_it_takes_to_tell_them_apart() {
        let one = "run_019a9a9a9a9a7000800000000a111111";
        let two = "run_019a9a9a9a9a7000800000000b111111";
        let three = "exe_019a9a9a9a9a7000800000000c222222";
        assert_eq!(shorten(&[one, three]), ["111111", "222222"]);
        assert_eq!(shorten(&[one, two, three, one]), ["a111111", "b111111", "c222222", "a111111"]);
        assert_eq!(shorten(&["sonnet", one, "run_0", ""]), ["sonnet", "111111", "run_0", ""]);
        assert_eq!(shorten(&[]), Vec::<String>::new());
    }

    #[test]
    fn ids_that_share_all_their_digits_stay_apart_by_their_kind_alone() {
        let run = "run_019a9a9a9a9a7000800000000a111111";
        let execution = "exe_019a9a9a9a9a7000800000000a111111";
        let shown = shorten(&[run, execution]);
        assert_eq!(shown, ["019a9a9a9a9a7000800000000a111111"; 2]);
    }
}
