//! Plans that are refused before anything is called.

use super::Desk;
use super::stub::{Stub, says, tool};

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_plan_is_refused_and_nothing_is_called() {
    let stub = Stub::start(vec![("t", tool(|_, _| says("x")))]).await;
    let desk = Desk::with_stubs(&[("only", &stub)]);
    let task = |more: &str| format!("[[task]]\nid = \"a\"\ntool = \"t\"\n{more}\n");
    let second = |more: &str| format!("{}[[task]]\nid = \"b\"\n{more}\n", task(""));
    let table: Vec<(String, &[&str])> = vec![
        (String::new(), &["no task", "[[task]]"]),
        ("[[task]\n".to_owned(), &["line 1"]),
        ("x = ".to_owned() + &"[".repeat(100_000), &["plan.toml"]),
        ("\u{0}".to_owned(), &["line 1"]),
        ("task = 3".to_owned(), &["line 1", "invalid type"]),
        (task("colour = 1"), &["line 4", "colour"]),
        (second(""), &["missing field `tool`"]),
        (second("tool = \"nothing\""), &["task b", "no server", "nothing", "host tools"]),
        (second("tool = \"t\"\nserver = \"who\""), &["task b", "who", "only"]),
        (second("tool = \"t\"\nafter = [\"z\"]"), &["task b", "z", "not in the plan"]),
        (second("tool = \"t\"\nargs = { x = \"${b.x}\" }"), &["one another", "b → b"]),
        (second("tool = \"t\"\nargs = { x = \"${z}\" }"), &["task b", "${z", "$${"]),
        (second("tool = \"t\"\ntimeout_seconds = 0"), &["task b", "timeout_seconds"]),
        (second("tool = \"t\"\nretries = 1000"), &["task b", "retries", "at most 10"]),
        (second("tool = \"t\"\ntimeout_seconds = 99999999999999999999"), &["plan.toml"]),
        (task("") + "[synthesis]\ntemplate = \"${b}\"", &["synthesis", "${b"]),
    ];
    for (plan, words) in table {
        let ended = desk.run(&plan, &[]).await;
        ended.refused(2, words);
    }
    assert_eq!(stub.calls("t").len(), 0);
    desk.command(&["host", "run", "no.toml"]).await.refused(2, &["no.toml", "cannot be read"]);
    desk.command(&["host", "run", "."]).await.refused(2, &["cannot be read"]);
    let large = format!("# {}\n", "x".repeat(2_000_000)) + &task("");
    desk.run(&large, &[]).await.refused(2, &["cannot be read"]);
    let both = desk.run(&task(""), &["--fresh", "--resume"]).await;
    assert_eq!(both.code, 2, "{both:?}");
    // And this one is good.
    desk.run(&task(""), &[]).await.done();
    assert_eq!(stub.calls("t").len(), 1);
}
