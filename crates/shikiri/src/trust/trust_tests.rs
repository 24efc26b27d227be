use std::fs;

use super::*;

fn trust_in(folder: &Path, variables: &'static [(&'static str, &'static str)]) -> ProjectTrust {
    let home = folder.join("home").into_os_string();
    let variable = |name: &str| match name {
        "HOME" => Some(home.clone()),
        name => variables.iter().find(|(known, _)| *known == name).map(|(_, it)| it.into()),
    };
    let current_folder = Some(folder.to_owned());
    let surroundings = Surroundings { variable: &variable, current_folder, ask: |_| None };
    ProjectTrust::new(folder, &surroundings).unwrap()
}

#[test]
fn agreement_is_for_one_folder_and_one_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shikiri.toml");
    fs::write(&path, "claude_bin = 'a'").unwrap();
    let trust = trust_in(folder.path(), &[]);
    let request = trust.request(ProjectFile::Settings).unwrap();
    let refused = trust.require(&request, &["claude_bin"]).unwrap_err();
    assert_eq!(refused.code(), 3);
    assert!(refused.to_string().contains("asks for what you have not agreed to: claude_bin"));

    trust.agree(&trust.requests()).unwrap();
    trust.require(&request, &["claude_bin"]).unwrap();
    fs::write(&path, "claude_bin = 'b'").unwrap();
    let changed = trust.request(ProjectFile::Settings).unwrap();
    let refused = trust.require(&changed, &["claude_bin"]).unwrap_err();
    assert!(refused.to_string().contains("has changed since you agreed to it"), "{refused}");
    trust_in(folder.path(), &[("SHIKIRI_TRUST", "1")]).require(&changed, &["x"]).unwrap();

    fs::create_dir(folder.path().join("other")).unwrap();
    let other = ProjectTrust { root: folder.path().join("other"), ..trust.clone() };
    assert!(!other.accepts(&request).unwrap(), "another folder with the same content");
    assert!(trust.revoke().unwrap() && !trust.revoke().unwrap());
    assert!(!trust.accepts(&request).unwrap());
}

#[test]
fn only_a_yes_is_an_agreement_and_without_a_home_none_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".mcp.json"), r#"{"mcpServers": {"a": {"command": "x"}}}"#)
        .unwrap();
    let mut trust = trust_in(folder.path(), &[]);
    let request = trust.request(ProjectFile::McpServers).unwrap();
    trust.ask = |_| Some(false);
    assert_eq!(trust.require(&request, &["a"]).unwrap_err().code(), 3);
    assert!(!trust.accepts(&request).unwrap());
    trust.ask = |question| {
        assert!(question.contains("server \"a\" starts: x") && question.ends_with("[y/N] "));
        Some(true)
    };
    trust.require(&request, &["a"]).unwrap();
    assert!(trust.accepts(&request).unwrap());
    let homeless = ProjectTrust { file: None, ..trust };
    assert_eq!(homeless.require(&request, &["a"]).unwrap_err().code(), 5);
}

#[test]
fn folders_are_named_so_that_a_shell_understands_them() {
    assert_eq!(shell_word("/a/b-c.d"), "/a/b-c.d");
    assert_eq!(shell_word("/a b/it's"), r"'/a b/it'\''s'");
}
