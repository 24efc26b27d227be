//! Finds the name that a person may have meant.

/// The known name that differs least from the given one, if a slip of the keyboard explains it.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let given = given.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&given, &name.to_lowercase());
    let all = known.into_iter().map(|name| (distance(name), name));
    let (distance, name) = all.min_by_key(|(distance, _)| *distance)?;
    (distance <= slips(&given)).then_some(name)
}

/// How many slips are likely in a word of this length.
fn slips(word: &str) -> usize {
    match word.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_is_found_and_another_word_is_not() {
        let known = ["travel_agent", "research_agent", "offline", "acme"];
        assert_eq!(nearest("travle_agent", known), Some("travel_agent"));
        assert_eq!(nearest("Ofline", known), Some("offline"));
        assert_eq!(nearest("acne", known), Some("acme"));
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("long_running_agent", known), None);
        assert_eq!(nearest("offline", []), None);
    }
}
