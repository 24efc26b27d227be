//! Skills on demand: the model sees names and descriptions, and asks for what it needs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use shikiri_model::skill::Skill;

use super::tool_results::{MAX_TEXT, cut};
use crate::execution::{ToolCallResult, ToolSpec};

pub(super) const NAME: &str = "Skill";
/// Bound on all descriptions together, in bytes.
const MAX_DESCRIPTIONS: usize = 32 * 1024;

/// None if there are no skills.
pub(super) fn tool(skills: &[Skill]) -> Option<ToolSpec> {
    if skills.is_empty() {
        return None;
    }
    let mut list = String::new();
    for skill in skills {
        let description = skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = write!(list, "\n- {}: {description}", skill.name);
    }
    let description = format!(
        "Gives the instructions of a skill. Ask for a skill before doing what it is for, then \
         follow it; `path` gives one of the files that it names. There are:{}",
        cut(list, MAX_DESCRIPTIONS)
    );
    let input_schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "path": { "type": "string", "description": "One of the skill's files" },
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    Some(ToolSpec { name: NAME.to_owned(), description, input_schema, is_repeatable: true })
}

pub(super) fn call(skills: &[Skill], input: &Map<String, Value>) -> ToolCallResult {
    let text_field = |key: &str| input.get(key).and_then(Value::as_str);
    let Some(name) = text_field("name") else { return ToolCallResult::error("name is needed") };
    let Some(skill) = skills.iter().find(|skill| skill.name == name) else {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        return ToolCallResult::error(format!(
            "there is no skill {name:?}, only {}",
            names.join(", ")
        ));
    };
    let mut text = match text_field("path") {
        None | Some("" | "SKILL.md") => skill.content.clone(),
        Some(path) => {
            let Some(text) = skill.files.get(path.strip_prefix("./").unwrap_or(path)) else {
                return ToolCallResult::error(format!("the skill {name} has no file {path:?}"));
            };
            return ToolCallResult::text(cut(text.clone(), MAX_TEXT));
        }
    };
    text = cut(text, MAX_TEXT);
    if !skill.files.is_empty() {
        let paths: Vec<&str> = skill.files.keys().map(String::as_str).collect();
        let _ =
            write!(text, "\n\n[files of this skill, to be had by `path`: {}]", paths.join(", "));
    }
    ToolCallResult::text(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shikiri_model::ids::TenantId;
    use shikiri_model::models::ActiveStatus;

    use super::*;

    #[test]
    fn a_skill_is_shown_by_name_and_given_on_demand() {
        let skill = Skill {
            name: "tea".to_owned(),
            tenant: TenantId::local(),
            description: "How to\nmake 茶".to_owned(),
            content: "# 茶\nBoil.".to_owned(),
            files: BTreeMap::from([("leaf/kinds.md".to_owned(), "sencha".to_owned())]),
            status: ActiveStatus::Active,
        };
        let skills = [skill];
        assert!(tool(&[]).is_none());
        assert!(tool(&skills).unwrap().description.ends_with("\n- tea: How to make 茶"));
        let ask = |input: Value| call(&skills, input.as_object().unwrap());
        let whole = "# 茶\nBoil.\n\n[files of this skill, to be had by `path`: leaf/kinds.md]";
        assert_eq!(ask(json!({ "name": "tea" })), ToolCallResult::text(whole));
        let file = ask(json!({ "name": "tea", "path": "./leaf/kinds.md" }));
        assert_eq!(file, ToolCallResult::text("sencha"));
        for bad in [
            json!({}),
            json!({ "name": 1 }),
            json!({ "name": "coffee" }),
            json!({ "name": "tea", "path": "../../etc/passwd" }),
            json!({ "name": "tea", "path": "/etc/passwd" }),
        ] {
            assert!(ask(bad.clone()).is_error, "{bad}");
        }
    }
}
