use proptest::prelude::*;

use super::*;

fn hook() -> Hook {
    Hook::calling("/opt/no such folder/shikiri".into(), vec!["hook".into()])
}

fn installed(text: &str) -> String {
    let with = install(text, &hook()).unwrap();
    assert_eq!(install(&with, &hook()).unwrap(), with, "a second time changes something");
    assert_eq!(found(&with).unwrap().len(), hook().events().count());
    with
}

#[test]
fn a_settings_file_gets_our_hooks_and_keeps_all_else() {
    let text = r#"{
    // 自分の設定
    "model": "opus",
    "hooks": {
        "PreToolUse": [
            { "matcher": "Bash", "hooks": [{ "type": "command", "command": "mine" }] },
        ],
        "Notification": []
    },
    "zeta": { "b": 1, "a": [1,2,  3] } /* end */
}
"#;
    let with = installed(text);
    let (before, rest) =
        with.split_once("            {\n                \"matcher\": \"*\"").unwrap();
    assert!(text.starts_with(before), "{before}");
    assert!(rest.ends_with(&text[text.find("    \"zeta\"").unwrap()..]));
    let events: Vec<_> = found(&with).unwrap().into_iter().map(|found| found.event).collect();
    assert_eq!(events[0], "PreToolUse", "where its list is already");
    assert_eq!(uninstall(&with).unwrap(), text);
}

#[test]
fn what_was_put_into_a_text_can_be_taken_out_byte_for_byte() {
    let texts = [
        "{}",
        "{}\n",
        "{\"model\":\"opus\"}",
        "{ \"model\": \"opus\" }\n",
        "{\r\n\t\"model\": \"opus\"\r\n}\r\n",
        "{\n  \"model\": \"opus\", // mine\n}\n",
        "{\n  \"model\": \"opus\" // mine\n}",
        "{\n  \"hooks\": {\n    \"Stop\": [\n      {\"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}\n    ]\n  }\n}\n",
        "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"x\"}]}]}}",
    ];
    for text in texts {
        assert_eq!(uninstall(&installed(text)).unwrap(), text);
    }
}

#[test]
fn layouts_that_cannot_be_guessed_are_known_to_say_the_same() {
    let texts =
        ["", "\n", "{\n}", "{ }", "{\"hooks\": {}}", "{\n  \"hooks\": {\n    \"Stop\": []\n  }\n}"];
    for text in texts {
        let with = installed(text);
        assert!(differ_in_ours_only(&with, text).unwrap(), "{text}");
    }
    let other = installed("{\n  \"model\": \"opus\"\n}");
    assert!(!differ_in_ours_only(&other, "{}").unwrap());
    assert!(!differ_in_ours_only("{ /* new */ }", "{}").unwrap(), "a comment is lost");
}

#[test]
fn earlier_hooks_of_ours_are_replaced_and_those_of_others_stay_in_their_group() {
    let text = r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"a"},{"type":"command","command":"shikiri hook"},{"type":"command","command":"b"}]}],"Notification":[{"hooks":[{"type":"command","command":"/old/shikiri-hook"}]}]}}"#;
    let with = install(text, &Hook::posting("http://127.0.0.1:7420", "shk_k")).unwrap();
    let expected = r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"a"},{"type":"command","command":"b"}]}]}}"#;
    assert_eq!(uninstall(&with).unwrap(), expected);
    let found = found(&with).unwrap();
    assert!(found.iter().all(|f| matches!(&f.ours, Ours::Server { key, .. } if key == "shk_k")));
    assert!(!found.iter().any(|f| f.event == "SessionStart" || f.event == "Notification"));
}

#[test]
fn settings_of_another_shape_are_left_alone() {
    let fault = |text: &str| install(text, &hook()).map_err(|f| (f.line, f.what)).unwrap_err();
    assert_eq!(fault("[]").1, "the settings are not an object");
    assert_eq!(fault("{\n\"hooks\": []}"), (2, "\"hooks\" is not an object".to_owned()));
    assert_eq!(
        fault("{\"hooks\":{\n\n\"Stop\":{}}}"),
        (3, "the hooks of \"Stop\" are not a list".to_owned())
    );
    assert_eq!(fault("{\n\"a\": 1,,\n}").0, 2);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\/{}\\[\\], 試\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"/ ]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Independent of other content and of layout.
    #[test]
    fn any_settings_come_back_as_they_were(
        rest in prop::collection::btree_map("[a-z\"/ ]{1,6}", json_value(), 0..5),
        pretty in any::<bool>(),
    ) {
        let settings = Value::Object(rest.into_iter().filter(|(key, _)| key != "hooks").collect());
        let text = match pretty {
            true => serde_json::to_string_pretty(&settings).unwrap(),
            false => settings.to_string(),
        };
        let with = install(&text, &hook()).unwrap();
        let mut read: Value = serde_json::from_str(&with).unwrap();
        read.as_object_mut().unwrap().remove("hooks").unwrap();
        prop_assert_eq!(read, settings);
        prop_assert_eq!(install(&with, &hook()).unwrap(), with.clone());
        prop_assert_eq!(uninstall(&with).unwrap(), text);
    }
}
