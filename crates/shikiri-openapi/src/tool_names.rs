//! Names that models' APIs take: of tools and of arguments.

use std::collections::BTreeSet;

/// Of a tool's name and of an argument's.
const MAX_NAME: usize = 64;

/// Gives each thing a name of its own.
#[derive(Default)]
pub(crate) struct UniqueNames(BTreeSet<String>);

impl UniqueNames {
    /// The first of these that is free, or else the last one with a number.
    pub(crate) fn claim_unique<const N: usize>(&mut self, wishes: [String; N]) -> String {
        if let Some(free) = wishes.iter().find(|wish| !self.0.contains(*wish)) {
            self.0.insert(free.clone());
            return free.clone();
        }
        let last = wishes.last().map_or("", String::as_str);
        let numbered = (2..).map(|number: u32| {
            let end = format!("_{number}");
            format!("{}{end}", start(last, MAX_NAME - end.len()))
        });
        let free = numbered.into_iter().find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}

/// A tool's name: letters, digits, `_` and `-`.
pub(crate) fn tool(operation_id: Option<&str>, method: &str, path: &str) -> String {
    let is_told = |name: &String| name.contains(|c: char| c.is_ascii_alphanumeric());
    let by_id =
        operation_id.map(|id| sanitize_name(id, |c| matches!(c, '_' | '-'))).filter(is_told);
    by_id.unwrap_or_else(|| {
        let mut words = vec![method];
        words.extend(path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()));
        // Paths that differ only in what a name cannot hold have names that differ.
        let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/{}_-.".contains(c));
        let tail = if is_plain { String::new() } else { format!("_{:08x}", hash(path)) };
        sanitize_name(&format!("{}{tail}", words.join("_")), |c| c == '_')
    })
}

/// An argument's name: letters, digits, `_`, `-` and `.`.
pub fn argument_name(name: &str) -> String {
    let fitted = sanitize_name(name, |c| matches!(c, '_' | '-' | '.'));
    if fitted.is_empty() { "_".to_owned() } else { fitted }
}

/// What does not fit becomes `_`; what is too long is cut, and told from its like by a number.
fn sanitize_name(name: &str, also: impl Fn(char) -> bool) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || also(c);
    let fitted: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if fitted.len() <= MAX_NAME {
        return fitted;
    }
    format!("{}_{:08x}", start(&fitted, MAX_NAME - 9), hash(name))
}

fn start(ascii: &str, length: usize) -> &str {
    ascii.get(..length).unwrap_or(ascii)
}

/// FNV-1a: the same in every process and version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_named_after_their_operation_or_their_path() {
        assert_eq!(tool(Some("getPetById"), "get", "/pet/{petId}"), "getPetById");
        assert_eq!(tool(Some("pets/list all"), "get", "/pets"), "pets_list_all");
        assert_eq!(tool(None, "get", "/pet/{petId}/photos.zip"), "get_pet_petId_photos_zip");
        assert_eq!(tool(None, "get", "/"), "get");
        // A name without any letter that fits says nothing.
        assert_eq!(tool(Some("探す"), "get", "/pets"), "get_pets");
        let odd = tool(None, "get", "/犬");
        assert!(odd.starts_with("get_") && odd != tool(None, "get", "/猫"), "{odd}");
        let long = tool(Some(&"a".repeat(80)), "get", "/");
        assert_eq!(long.len(), 64);
        assert_ne!(long, tool(Some(&"a".repeat(81)), "get", "/"));
    }

    #[test]
    fn no_two_have_one_name() {
        let mut names = UniqueNames::default();
        assert_eq!(names.claim_unique(["id".to_owned(), "query_id".to_owned()]), "id");
        assert_eq!(names.claim_unique(["id".to_owned(), "query_id".to_owned()]), "query_id");
        assert_eq!(names.claim_unique(["id".to_owned(), "query_id".to_owned()]), "query_id_2");
        assert_eq!(names.claim_unique(["x".repeat(64)]), "x".repeat(64));
        assert_eq!(names.claim_unique(["x".repeat(64)]), format!("{}_2", "x".repeat(62)));
        assert_eq!(argument_name("filter[name]"), "filter_name_");
        assert_eq!(argument_name(""), "_");
    }
}
