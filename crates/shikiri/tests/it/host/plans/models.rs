//! Plans that a model makes, and texts that a model writes.

use serde_json::json;
use shikiri_testkit::{Cli, FakeModel, Reply};

use super::Desk;
use super::stub::{Stub, gives, tool};

const GOAL: &str = "find a trip";

const GOOD: &str = "```toml\n\
    [[task]]\nid = \"trip\"\ntool = \"search\"\nargs = { x = \"Paris\" }\n\
    [synthesis]\ntemplate = \"It costs ${trip.price}.\"\n```";

/// A desk whose project has a model at the fake API.
async fn desk(model: &FakeModel, stub: &Stub) -> Desk {
    let mut desk = Desk::with_stubs(&[("only", stub)]);
    desk.cli = Cli::new(crate::PROGRAM, desk.path())
        .env("SHIKIRI_TRUST", "1")
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "secret-of-the-test");
    let create = ["models", "create", "m", "--engine", "anthropic", "--model-name", "fake"];
    desk.command(&create).await.done();
    desk.command(&["tenants", "set", "local", "--model", "m"]).await.done();
    desk
}

async fn searching() -> Stub {
    Stub::start(vec![("search", tool(|_, _| gives(json!({ "price": 1200 }))))]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_models_plan_is_checked_shown_saved_and_carried_out() {
    let (model, stub) = (FakeModel::start().await, searching().await);
    let desk = desk(&model, &stub).await;
    // Its first plan names a tool that does not exist; told so, it makes a better one.
    model.answer(|request| {
        let bad = "[[task]]\nid = \"a\"\ntool = \"teleport\"\n";
        Some(Reply::text(if request.says("was refused") { GOOD } else { bad }))
    });
    let shown = desk.command(&["host", "plan", GOAL, "--save", "made.toml"]).await.done();
    assert!(shown.stdout.contains("tool = \"search\""), "{}", shown.stdout);
    assert!(shown.stderr.contains("not carried out"), "{}", shown.stderr);
    assert_eq!(stub.calls("search").len(), 0, "the person has not agreed");
    let asked = model.messages();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].says(GOAL) && asked[0].says("does search"), "{asked:?}");
    assert!(asked[1].says("offers a tool \\\"teleport\\\"") || asked[1].says("teleport"));
    // Its first line names its schema for editors, as in conventions.
    let saved = std::fs::read_to_string(desk.path().join("made.toml")).unwrap();
    assert_eq!(saved.lines().next(), Some("#:schema plan.schema.json"), "{saved}");
    let schema = std::fs::read_to_string(desk.path().join("plan.schema.json")).unwrap();
    let printed = desk.command(&["schema", "plan"]).await.done().json();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&schema).unwrap(), printed);
    // What was saved is a plan like any other.
    let ended = desk.command(&["host", "run", "made.toml"]).await.done();
    assert_eq!(ended.stdout, "It costs 1200.\n");
    assert_eq!(stub.calls("search")[0].arguments, json!({ "x": "Paris" }));
    desk.command(&["host", "plan", GOAL, "--save", "made.toml"])
        .await
        .refused_last(2, "made.toml cannot be written");

    let ended = desk.command(&["host", "plan", GOAL, "--yes", "--json"]).await.done();
    let report = ended.json();
    assert_eq!((&report["state"], &report["goal"]), (&json!("completed"), &json!(GOAL)));
    assert_eq!(report["synthesis"], "It costs 1200.");
    assert_eq!(stub.calls("search").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_makes_no_plan_is_given_up() {
    let (model, stub) = (FakeModel::start().await, searching().await);
    let desk = desk(&model, &stub).await;
    model.answer(|_| Some(Reply::text("I would rather not.")));
    let ended = desk.command(&["host", "plan", GOAL, "--yes"]).await;
    ended.refused_last(1, "made no plan");
    assert_eq!(model.messages().len(), 3);
    assert_eq!(stub.calls("search").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_by_a_model_has_its_gaps_listed_by_us() {
    let (model, stub) = (FakeModel::start().await, searching().await);
    let desk = desk(&model, &stub).await;
    model.answer(|_| Some(Reply::text("All went well, in every way.")));
    let plan = r#"
        goal = "a trip"
        [[task]]
        id = "trip"
        tool = "search"
        [[task]]
        id = "more"
        tool = "search"
        args = { x = "${trip.nothing}" }
        [synthesis]
        engine = true
    "#;
    let ended = desk.run(plan, &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let gap = "`${trip.nothing}`: trip: its result has no `nothing`; it has price";
    assert_eq!(ended.stdout, format!("All went well, in every way.\n\nMissing: more: {gap}\n"));
    let asked = &model.messages()[0];
    assert!(asked.says("a trip") && asked.says("(missing: more:"), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_it_is_said_and_the_results_are_listed() {
    let stub = searching().await;
    let desk = Desk::with_stubs(&[("only", &stub)]);
    let none = desk.command(&["host", "plan", GOAL]).await;
    none.refused(5, &["offline", "shikiri models create", "shikiri tenants set local"]);
    let plan = "[[task]]\nid = \"a\"\ntool = \"search\"\n[synthesis]\nengine = true\n";
    let ended = desk.run(plan, &[]).await.done();
    assert_eq!(ended.stdout, "a: {\"price\":1200}\n");
    assert!(ended.stderr.contains("no model wrote this text"), "{}", ended.stderr);
    assert!(ended.stderr.contains("offline"), "{}", ended.stderr);
}

/// Commands that tell what they do before they fail.
trait RefusedLast {
    fn refused_last(&self, code: i32, words: &str);
}

impl RefusedLast for shikiri_testkit::Ended {
    #[track_caller]
    fn refused_last(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.lines().last().unwrap_or_default().contains(words), "{self:?}");
    }
}
