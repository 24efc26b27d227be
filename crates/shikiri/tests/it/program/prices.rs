//! What is billed with the prices that are built in, and how that is told.

use super::fresh;

const NAME: &str = "claude-sonnet-4-5-20250929";
const NOTE: &str = "built-in prices as of 2026-11-19: claude-sonnet-4-5-20250929\n";

#[test]
fn a_known_model_without_prices_is_billed_with_the_built_in_ones() {
    let (_folder, cli) = fresh();
    cli.run(&["models", "create", "s", "--engine", "offline", "--model-name", NAME]).done();
    let model = cli.run(&["models", "show", "s"]).done().stdout;
    assert!(model.contains("3 (built in, as of 2026-11-19)"), "{model}");
    let told = cli.run(&["run", "Hello", "--model", "s"]).done();
    assert!(!told.stderr.contains("PRICE_UNKNOWN"), "{}", told.stderr);

    let executions = cli.run(&["executions", "list", "--json"]).json();
    let id = executions["items"][0]["id"].as_str().unwrap();
    // 10 tokens in at 3 dollars a million and 20 out at 15.
    assert_eq!(executions["items"][0]["total_cost_usd"], 0.00033);
    let shown = cli.run(&["executions", "show", id]).done();
    assert!(shown.stdout.contains("0.00033") && shown.stderr == NOTE, "{shown:?}");

    // Prices of its own win from then on, and change no bill that was written.
    cli.run(&["models", "set", "s", "--price-input", "7"]).done();
    let shown = cli.run(&["executions", "show", id]).done();
    assert!(shown.stdout.contains("0.00033") && shown.stderr.is_empty(), "{shown:?}");
    cli.run(&["run", "Hello", "--model", "s"]).done();
    let executions = cli.run(&["executions", "list", "--json"]).json();
    let costs = [0, 1].map(|at| executions["items"][at]["total_cost_usd"].as_f64());
    assert_eq!(costs, [Some(0.00007), Some(0.00033)]);
}
