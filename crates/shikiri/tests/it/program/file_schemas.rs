//! The schemas that `shikiri schema` prints, against the files that people get and write.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::Value;
use shikiri_testkit::Cli;

use super::fresh;

/// The schema as the program prints it.
fn schema(cli: &Cli, name: &str) -> Value {
    cli.run(&["schema", name]).done().json()
}

fn faults(schema: &Value, toml: &str) -> Vec<String> {
    let validator: Validator = jsonschema::validator_for(schema).expect("a schema");
    let value: toml::Table = toml::from_str(toml).expect("TOML");
    let value = serde_json::to_value(value).unwrap();
    validator.iter_errors(&value).map(|error| error.to_string()).collect()
}

#[track_caller]
fn assert_valid(schema: &Value, toml: &str, what: &str) {
    assert_eq!(faults(schema, toml), Vec::<String>::new(), "{what}");
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of these names in the folders that people read.
fn files_named(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            files_named(&path, name, found);
        } else if path.file_name().is_some_and(|file| file == name) {
            found.push(path);
        }
    }
}

#[test]
fn every_example_file_is_valid_by_its_schema() {
    let (_folder, cli) = fresh();
    let files = [
        ("conventions.toml", "conventions"),
        ("providers.toml", "providers"),
        ("shikiri.toml", "config"),
        ("plan.toml", "plan"),
    ];
    let mut checked = 0;
    for (file, name) in files {
        let schema = schema(&cli, name);
        let mut found = Vec::new();
        files_named(&project(), file, &mut found);
        for path in found {
            assert_valid(&schema, &fs::read_to_string(&path).unwrap(), &path.display().to_string());
            checked += 1;
        }
    }
    assert!(checked >= 2, "no example files were found");
}

#[test]
fn what_init_writes_names_its_schema_and_is_valid_by_it() {
    let (folder, cli) = fresh();
    cli.run(&["hooks", "init"]).done();
    let data = folder.path().join(".shikiri");
    let text = fs::read_to_string(data.join("conventions.toml")).unwrap();
    let named = text.lines().next().unwrap().strip_prefix("#:schema ").expect("a schema's name");
    let written: Value = serde_json::from_slice(&fs::read(data.join(named)).unwrap()).unwrap();
    assert_eq!(written, schema(&cli, "conventions"));
    assert_valid(&written, &text, "the starter");
    // A newer program may have a newer schema.
    fs::write(data.join(named), "{}").unwrap();
    cli.run(&["hooks", "init"]).refused(3, &["is there already"]);
    cli.run(&["hooks", "init", "--force"]).done();
    let again: Value = serde_json::from_slice(&fs::read(data.join(named)).unwrap()).unwrap();
    assert_eq!(again, written);
}

#[test]
fn a_misspelt_key_or_a_wrong_value_is_invalid() {
    let (_folder, cli) = fresh();
    let task = "[[task]]\nid = 'a'\ntool = 't'\n";
    let cases = [
        ("config", "max_streams = 5", "max_stream = 5"),
        ("config", "max_agents = '7'", "max_agents = true"),
        ("config", "durability = 'full'", "durability = 'half'"),
        ("config", "log_format = 'json'", "log_format = 'xml'"),
        ("conventions", "[main]\ntext = 'x'", "[main]\ntxt = 'x'"),
        ("conventions", "[[rules]]\nseverity = 'block'", "[[rules]]\nseverity = 'blok'"),
        ("providers", "[chatgpt]\nenabled = false", "[chatgpt]\nenabeld = false"),
        ("providers", "[x.selectors]\ninput = ['a']", "[x.selectors]\ninput = 'a'"),
        ("plan", task, "[[task]]\nid = 'a'\n"),
        ("plan", &format!("{task}server = ['a', 'b']"), &format!("{task}sever = 'a'")),
        ("plan", &format!("{task}server = 'a'"), &format!("{task}server = 1")),
    ];
    for (name, right, wrong) in cases {
        let schema = schema(&cli, name);
        assert_valid(&schema, right, right);
        assert_ne!(faults(&schema, wrong), Vec::<String>::new(), "{wrong}");
    }
}

#[test]
fn each_setting_stands_in_the_schema_with_its_text() {
    let (_folder, cli) = fresh();
    let schema = schema(&cli, "config");
    let settings = || shikiri::config::table::Setting::all();
    let properties = schema["properties"].as_object().unwrap();
    let keys: BTreeSet<&str> = settings().map(|setting| setting.key).collect();
    assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), keys);
    for setting in settings() {
        let text = properties[setting.key]["description"].as_str().unwrap();
        assert!(text.starts_with(setting.help), "{}: {text}", setting.key);
    }
}

#[test]
fn the_schemas_are_listed_and_an_unknown_one_is_refused() {
    let (_folder, cli) = fresh();
    let list = cli.run(&["schema"]).done().stdout;
    for name in ["config", "conventions", "providers", "plan"] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{name}: {list}");
    }
    cli.run(&["schema", "conventons"]).refused(2, &["'conventons'", "'conventions'"]);
}
