use super::*;

fn result(value: Value) -> PlanTaskResult {
    PlanTaskResult::read(value.as_object().unwrap()).unwrap()
}

#[test]
fn a_path_leads_into_the_structured_result_else_into_the_text() {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let both = result(json!({
        "content": text("{\"n\": 1}"),
        "structuredContent": { "n": 2, "list": [{ "x": "deep" }], "none": null },
    }));
    let json_text = result(json!({ "content": text("{\"n\": [1, true]}") }));
    let plain = result(json!({ "content": text("hello") }));
    let list = result(json!({ "content": text("[1]") }));
    let table: [(&PlanTaskResult, &[&str], Result<Value, &str>); 12] = [
        (&both, &[], Ok(json!("{\"n\": 1}"))),
        (&both, &["n"], Ok(json!(2))),
        (&both, &["list", "0", "x"], Ok(json!("deep"))),
        (&both, &["list", "0"], Ok(json!({ "x": "deep" }))),
        (&both, &["none"], Ok(Value::Null)),
        (&both, &["m"], Err("its result has no `m`; it has list, n, none")),
        (&both, &["list", "1"], Err("its result has no `list.1`; it is a list of 1")),
        (&both, &["n", "x"], Err("its result has no `n.x`")),
        (&json_text, &["n", "1"], Ok(json!(true))),
        (&plain, &[], Ok(json!("hello"))),
        (&plain, &["n"], Err("its result is plain text, which has no `n`")),
        (&list, &["0"], Ok(json!(1))),
    ];
    for (result, path, wanted) in table {
        assert_eq!(result.value_at_path(path), wanted.map_err(str::to_owned), "{path:?}");
    }
}

#[test]
fn a_result_is_its_texts_and_without_any_its_other_content_is_named() {
    let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
    let link = json!({ "type": "resource_link", "uri": "x://y" });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let read = result(json!({ "content": [text("{\"n\":"), image, link, text("1}")] }));
    assert_eq!(read.text, "{\"n\":\n1}");
    assert_eq!(read.value_at_path(&["n"]), Ok(json!(1)));
    let read = result(json!({ "content": [image, link, { "type": "audio" }] }));
    assert_eq!(read.text, "[image: image/png]\n[resource_link: x://y]\n[audio: no text]");
    assert_eq!(result(json!({})).text, "");
    let large = json!({ "content": [{ "type": "text", "text": "x".repeat(1_100_000) }] });
    let refusal = PlanTaskResult::read(large.as_object().unwrap()).unwrap_err();
    assert!(refusal.contains("1100000 bytes"), "{refusal}");
}

/// `a` done with this, `b` failed, `c` skipped.
fn ended(synthesis: Value) -> PlanRun {
    let mut run = run(json!({
        "goal": "a trip",
        "task": [
            { "id": "a", "tool": "t" },
            { "id": "b", "tool": "t" },
            { "id": "c", "tool": "t", "after": ["b"] },
        ],
        "synthesis": synthesis,
    }));
    let here = offered(&["x"]);
    play(&mut run, "a", structured(json!({ "price": 1200, "who": "Ann" })), &here, 0);
    play(&mut run, "b", broken(), &here, 0);
    run
}

const GAPS: &str = "Missing: b: out of paper\nMissing: c: skipped, since b failed";

#[test]
fn a_template_says_what_is_missing_in_its_place_and_at_the_end() {
    let written = ended(json!({
        "template": "${a.who} pays ${a.price}; ${b.x}. $${a} ${a.when} ${a}",
    }))
    .compose();
    let wanted = "Ann pays 1200; (missing: b: out of paper). ${a} \
                  (missing: a: its result has no `when`; it has price, who) \
                  {\"price\":1200,\"who\":\"Ann\"}";
    let last = "Missing: a: its result has no `when`; it has price, who";
    assert_eq!(written.text, format!("{wanted}\n\n{GAPS}\n{last}"));
    assert_eq!(written.by, SynthesisAuthor::Template);
}

#[test]
fn gaps_are_listed_though_nothing_refers_to_them() {
    let template = ended(json!({ "template": "All is well." })).compose();
    assert_eq!(template.text, format!("All is well.\n\n{GAPS}"));
    let model = ended(json!({ "engine": true })).written_by_model(" All is well.\n");
    assert_eq!(model.text, format!("All is well.\n\n{GAPS}"));
    let list = ended(json!({})).compose();
    let parts = "a: {\"price\":1200,\"who\":\"Ann\"}\n(missing: b: out of paper)\n\
                 (missing: c: skipped, since b failed)";
    assert_eq!(list.text, format!("{parts}\n\n{GAPS}"));
}

#[test]
fn a_model_is_shown_the_results_and_the_gaps() {
    assert_eq!(ended(json!({})).prompt(), None);
    let prompt = ended(json!({ "engine": true, "prompt": "For ${a.who}, shortly." })).prompt();
    let prompt = prompt.unwrap();
    assert!(prompt.starts_with("For Ann, shortly.\n"), "{prompt}");
    assert!(prompt.contains("<result task=\"b\">\n(missing: b: out of paper)\n</result>"));
    let goal = ended(json!({ "engine": true })).prompt().unwrap();
    assert!(goal.starts_with("Answer this from the results: a trip\n"), "{goal}");
}

#[test]
fn a_whole_plan_has_no_gaps() {
    let mut run = run(two());
    let here = offered(&["x"]);
    play(&mut run, "a", structured(json!({ "price": 1 })), &here, 0);
    play(&mut run, "b", said("done"), &here, 1);
    assert_eq!(run.missing(), []);
    run.finish(run.compose(), at(2));
    assert_eq!(run.state, PlanState::Completed);
    assert_eq!(run.written.unwrap().text, "a: {\"price\":1}\nb: done");
}

#[test]
fn what_is_kept_is_read_again() {
    let mut run = ended(json!({ "template": "${a}" }));
    run.finish(run.compose(), at(9));
    let kept: PlanRun = serde_json::from_str(&json!(run).to_string()).unwrap();
    assert_eq!(kept, run);
}
