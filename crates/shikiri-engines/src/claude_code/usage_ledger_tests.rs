use serde_json::json;

use super::*;

fn used(input: u64, output: u64) -> TokenUsage {
    TokenUsage { input_tokens: input, output_tokens: output, ..TokenUsage::default() }
}

fn spend(
    ledger: &mut CliUsageLedger,
    id: &str,
    model: &str,
    usage: TokenUsage,
    source: UsageQuality,
) -> bool {
    ledger.spend(TokenSpender::Main, id, model, usage, source).is_some()
}

fn rest(model: &str, usage: TokenUsage) -> EngineMessage {
    super::rest(model.to_owned(), usage)
}

#[test]
fn usage_is_read_whole_in_part_and_in_its_old_form() {
    let whole = update(
        TokenUsage::default(),
        &json!({
            "input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 9,
            "cache_creation": { "ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 5 },
        }),
    );
    let expected = TokenUsage {
        cache_write_5m_tokens: 4,
        cache_write_1h_tokens: 5,
        cache_read_tokens: 3,
        ..used(1, 2)
    };
    assert_eq!(whole, expected);
    let later = json!({ "output_tokens": 7, "input_tokens": 0, "cache_creation_input_tokens": 9 });
    assert_eq!(update(whole, &later), TokenUsage { output_tokens: 7, ..expected });
    let old = update(TokenUsage::default(), &json!({ "cache_creation_input_tokens": 6 }));
    assert_eq!(old, TokenUsage { cache_write_5m_tokens: 6, ..TokenUsage::default() });
    assert_eq!(update(TokenUsage::default(), &Value::Null), TokenUsage::default());
}

#[test]
fn a_better_number_replaces_a_lesser_one_and_not_the_other_way_round() {
    let mut ledger = CliUsageLedger::default();
    assert!(spend(&mut ledger, "m", "x", used(5, 1), UsageQuality::Opening));
    assert!(!spend(&mut ledger, "m", "x", used(5, 1), UsageQuality::Opening), "no news");
    assert!(spend(&mut ledger, "m", "x", used(5, 1), UsageQuality::Open));
    assert!(ledger.add("m", &json!({ "output_tokens": 9 }), UsageQuality::Whole).is_some());
    assert!(!spend(&mut ledger, "m", "x", used(5, 1), UsageQuality::Opening));
    ledger.count(&json!({ "modelUsage": { "x": { "inputTokens": 5, "outputTokens": 9 } } }));
    assert!(ledger.unexplained_usage().is_empty() && ledger.incomplete_usage_warning().is_none());
}

#[test]
fn what_the_cli_counted_besides_is_the_main_threads() {
    let mut ledger = CliUsageLedger::default();
    let hour = TokenUsage { cache_write_1h_tokens: 3, ..used(10, 10) };
    spend(&mut ledger, "m", "opus", hour, UsageQuality::Whole);
    // An older version: no split, a longer name, everything so far in each result.
    let counted = |output: u64| {
        json!({ "modelUsage": {
            "opus[1m]": {
                "inputTokens": 10, "outputTokens": output, "cacheCreationInputTokens": 3,
            },
            "haiku": { "inputTokens": 4, "outputTokens": 2, "cacheReadInputTokens": 1 },
        } })
    };
    ledger.count(&counted(5));
    ledger.count(&counted(10));
    assert_eq!(
        ledger.unexplained_usage(),
        [rest("haiku", TokenUsage { cache_read_tokens: 1, ..used(4, 2) })]
    );
}

#[test]
fn a_newer_count_is_of_the_time_since_the_last_result() {
    let mut ledger = CliUsageLedger::default();
    spend(&mut ledger, "m", "opus", used(30, 3), UsageQuality::Whole);
    for output in [1, 2] {
        let since = json!({ "opus": { "inputTokens": 15, "outputTokens": output } });
        let all = json!({ "opus": { "inputTokens": 900, "outputTokens": 900 } });
        ledger.count(&json!({ "model_usage_since_last_result": since, "modelUsage": all }));
    }
    assert!(ledger.unexplained_usage().is_empty(), "{:?}", ledger.unexplained_usage());
}

#[test]
fn other_names_for_the_same_models_count_nothing_twice() {
    let mut ledger = CliUsageLedger::default();
    spend(&mut ledger, "m", "claude-opus", used(10, 10), UsageQuality::Whole);
    ledger.count(&json!({ "modelUsage": { "us.anthropic.opus-v1:0": {
        "inputTokens": 10, "outputTokens": 10,
    } } }));
    assert!(ledger.unexplained_usage().is_empty());
    ledger.count(&json!({ "modelUsage": { "us.anthropic.opus-v1:0": {
        "inputTokens": 12, "outputTokens": 10,
    } } }));
    assert_eq!(ledger.unexplained_usage(), [rest("us.anthropic.opus-v1:0", used(2, 0))]);
}

#[test]
fn requests_that_were_cut_off_are_told_and_may_be_counted_or_not() {
    let mut ledger = CliUsageLedger::default();
    spend(&mut ledger, "a", "opus", used(10, 10), UsageQuality::Whole);
    spend(&mut ledger, "b", "opus", used(10, 1), UsageQuality::Open);
    let count =
        |input| json!({ "modelUsage": { "opus": { "inputTokens": input, "outputTokens": 10 } } });
    ledger.count(&count(10));
    assert!(ledger.unexplained_usage().is_empty());
    let Some(EngineMessage::Warning { code, .. }) = ledger.incomplete_usage_warning() else {
        panic!("not told")
    };
    assert_eq!(code, WarningCode::UsageIncomplete);
    let with_cut = json!({ "opus": { "inputTokens": 20, "outputTokens": 11 } });
    ledger.count(&json!({ "modelUsage": with_cut }));
    assert!(ledger.unexplained_usage().is_empty(), "one that broke off is counted");
    ledger.count(&count(7));
    let told = ledger.unexplained_usage();
    let [EngineMessage::Warning { code, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*code, WarningCode::UsageDiffers);
}
