use super::*;

/// One task with these fields besides its id and tool.
fn with(fields: Value) -> Value {
    let mut task = json!({ "id": "a", "tool": "t" });
    let all = task.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    json!({ "task": [task] })
}

#[test]
fn a_plan_that_cannot_be_carried_out_is_refused_with_the_next_step() {
    let many: Vec<_> = (0..101).map(|n| json!({ "id": format!("t{n}"), "tool": "t" })).collect();
    let circle = json!({ "task": [
        { "id": "x", "tool": "t", "after": ["c"] },
        { "id": "a", "tool": "t", "args": { "q": ["${c}"] } },
        { "id": "b", "tool": "t", "after": ["a"] },
        { "id": "c", "tool": "t", "args": { "q": { "r": "see ${b.x.y}" } } },
    ]});
    let twice = json!({ "task": [{ "id": "a", "tool": "t" }, { "id": "a", "tool": "u" }] });
    let with_synthesis =
        |synthesis: Value| json!({ "task": [{ "id": "a", "tool": "t" }], "synthesis": synthesis });
    let table = [
        (json!({}), "the plan has no task: write at least one"),
        (json!({ "task": many }), "the plan has 101 tasks: split it"),
        (json!({ "tasks": [] }), "unknown field `tasks`"),
        (json!({ "task": [{ "id": "a" }] }), "missing field `tool`"),
        (with(json!({ "id": "a b" })), "task \"a b\": an id has"),
        (with(json!({ "id": "" })), "task \"\": an id has"),
        (with(json!({ "id": "x".repeat(65) })), "an id has 1 to 64"),
        (twice, "task a: there are two of that id"),
        (with(json!({ "tool": "" })), "task a: `tool` is no name: `shikiri host tools`"),
        (with(json!({ "server": "" })), "task a: `server` \"\" is no name"),
        (with(json!({ "server": 3 })), "`server` is a name or a list of names"),
        (with(json!({ "argz": {} })), "unknown field `argz`"),
        (with(json!({ "retries": 11 })), "task a: `retries` is 11: write at most 10"),
        (with(json!({ "retries": -1 })), "invalid value: integer `-1`"),
        (with(json!({ "retries": 1, "once": true })), "task a: `once` and `retries` contradict"),
        (with(json!({ "timeout_seconds": 0 })), "task a: `timeout_seconds` is 0: write 1 to"),
        (with(json!({ "timeout_seconds": 86_401 })), "`timeout_seconds` is 86401"),
        (with(json!({ "args": { "q": "x".repeat(300_000) } })), "task a: `args` has 3000"),
        (with(json!({ "after": ["z"] })), "task a: `after` names z, which is not in the plan"),
        (with(json!({ "args": { "q": "${z.x}" } })), "task a: `${z…}` names no task"),
        (with(json!({ "args": { "q": "${HOME}" } })), "write `$${` for a plain `${`"),
        (with(json!({ "args": { "q": "${a" } })), "task a: `args`: `${` without its `}`"),
        (with(json!({ "args": { "q": "${a..b}" } })), "`${a..b}` has an empty part"),
        (with(json!({ "args": { "q": "${}" } })), "`${}` has an empty part"),
        (with(json!({ "after": ["a"] })), "tasks wait for one another: a → a"),
        (circle, "tasks wait for one another: a → c → b → a: take one"),
        (
            with_synthesis(json!({ "template": "x", "engine": true })),
            "synthesis: `template` and `engine` are two ways",
        ),
        (with_synthesis(json!({ "prompt": "x" })), "synthesis: `prompt` is for a model"),
        (with_synthesis(json!({ "template": "${z}" })), "synthesis: `${z…}` names no task"),
        (with_synthesis(json!({ "template": "${" })), "synthesis: `${` without its `}`"),
        (with_synthesis(json!({ "template": "x".repeat(70_000) })), "too long"),
        (with_synthesis(json!({ "tempate": "x" })), "unknown field `tempate`"),
    ];
    for (written, wanted) in table {
        let shown = written.to_string().chars().take(200).collect::<String>();
        let refusal = plan(written).expect_err(&shown);
        assert!(refusal.contains(wanted), "{shown}\n{refusal}\nwithout: {wanted}");
    }
}

#[test]
fn a_plan_with_every_field_is_read() {
    let read = plan(json!({
        "goal": "a trip",
        "task": [
            { "id": "a", "tool": "t" },
            {
                "id": "b-2_B", "tool": "t", "server": ["x", "y"], "after": ["a"], "retries": 2,
                "timeout_seconds": 5, "args": { "n": 3, "deep": ["${a.list.0}", "$${HOME}"] },
            },
            { "id": "c", "tool": "t", "server": "x", "once": true },
        ],
        "synthesis": { "engine": true, "prompt": "about ${a}" },
    }))
    .unwrap();
    assert_eq!(read.tasks[1].servers.0, ["x", "y"]);
    assert_eq!(read.tasks[2].servers.0, ["x"]);
    assert_eq!(read.tasks[1].needs().into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(read.tasks[0].timeout_seconds, 300);
    // What is kept is what was read.
    let kept: HostPlan = serde_json::from_value(json!(read)).unwrap();
    assert_eq!(kept, read);
    assert_eq!(kept.digest().unwrap(), read.digest().unwrap());
}

#[test]
fn another_plan_has_another_digest() {
    let digest = |args: Value| plan(with(json!({ "args": args }))).unwrap().digest().unwrap();
    assert_eq!(digest(json!({ "a": 1, "b": 2 })), digest(json!({ "b": 2, "a": 1 })));
    assert_ne!(digest(json!({ "a": 1 })), digest(json!({ "a": "1" })));
}
