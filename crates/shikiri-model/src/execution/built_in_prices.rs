//! List prices of Anthropic's usual models, for a model whose record has no prices of its own. They
//! are what Claude Code 2.1.325 calculates with, measured class by class, whatever the provider and
//! the length of the request. A provider's discount or surcharge is not in them.

use super::token_usage::{ModelPrices, TokenPrice};

/// The day on which the prices were current.
pub const PRICES_AS_OF: &str = "2026-11-19";

/// Dollars per million tokens, in millionths: the input, the output and a cache read. A cache write
/// costs 1.25 times the input for five minutes and twice the input for an hour.
const fn list_prices(input: u64, output: u64, cache_read: u64) -> ModelPrices {
    ModelPrices {
        input: TokenPrice::from_micros(input),
        output: TokenPrice::from_micros(output),
        cache_write_5m: TokenPrice::from_micros(input + input / 4),
        cache_write_1h: TokenPrice::from_micros(input * 2),
        cache_read: TokenPrice::from_micros(cache_read),
    }
}

const FABLE_5: ModelPrices = list_prices(10_000_000, 50_000_000, 1_000_000);
const FABLE_5_1: ModelPrices = list_prices(10_000_000, 50_000_000, 250_000);
const FABLE_5_2: ModelPrices = list_prices(8_000_000, 40_000_000, 200_000);
const OPUS_5_5: ModelPrices = list_prices(4_000_000, 20_000_000, 200_000);
const OPUS_4_5: ModelPrices = list_prices(5_000_000, 25_000_000, 500_000);
/// As of 2025-12-01: newer versions of Claude Code no longer run these models.
const OPUS_4: ModelPrices = list_prices(15_000_000, 75_000_000, 1_500_000);
const SONNET_5_5: ModelPrices = list_prices(2_000_000, 10_000_000, 100_000);
const SONNET_5: ModelPrices = list_prices(2_000_000, 10_000_000, 200_000);
const SONNET_4: ModelPrices = list_prices(3_000_000, 15_000_000, 300_000);
const HAIKU_5_5: ModelPrices = list_prices(100_000, 500_000, 10_000);
const HAIKU_4_5: ModelPrices = list_prices(1_000_000, 5_000_000, 100_000);
const HAIKU_3_5: ModelPrices = list_prices(800_000, 4_000_000, 80_000);

/// Each name also stands for its dated forms, such as `claude-haiku-4-5-20251001`.
const BUILT_IN: [(&str, ModelPrices); 25] = [
    ("claude-fable-5-2", FABLE_5_2),
    ("claude-fable-5-1", FABLE_5_1),
    ("claude-fable-5", FABLE_5),
    ("claude-mythos-5-2", FABLE_5_2),
    ("claude-mythos-5-1", FABLE_5_1),
    ("claude-mythos-5", FABLE_5),
    ("claude-opus-5-5", OPUS_5_5),
    ("claude-opus-5", OPUS_4_5),
    ("claude-opus-4-8", OPUS_4_5),
    ("claude-opus-4-7", OPUS_4_5),
    ("claude-opus-4-6", OPUS_4_5),
    ("claude-opus-4-5", OPUS_4_5),
    ("claude-opus-4-1", OPUS_4),
    ("claude-opus-4-0", OPUS_4),
    ("claude-opus-4", OPUS_4),
    ("claude-sonnet-5-5", SONNET_5_5),
    ("claude-sonnet-5", SONNET_5),
    ("claude-sonnet-4-6", SONNET_4),
    ("claude-sonnet-4-5", SONNET_4),
    ("claude-sonnet-4-0", SONNET_4),
    ("claude-sonnet-4", SONNET_4),
    ("claude-3-7-sonnet", SONNET_4),
    ("claude-haiku-5-5", HAIKU_5_5),
    ("claude-haiku-4-5", HAIKU_4_5),
    ("claude-3-5-haiku", HAIKU_3_5),
];

/// The list prices of a model, by the name that its provider reports.
pub fn built_in_prices(model: &str) -> Option<&'static ModelPrices> {
    let model = without_date(plain_name(model));
    BUILT_IN.iter().find(|(name, _)| *name == model).map(|(_, prices)| prices)
}

/// The name without `[1m]`, which asks for a longer context at the same prices, and without what
/// Amazon Bedrock adds: `eu.anthropic.claude-opus-4-5-20251101-v1:0` is `claude-opus-4-5-20251101`.
fn plain_name(model: &str) -> &str {
    let model = model.strip_suffix("[1m]").unwrap_or(model);
    match model.split_once("anthropic.") {
        Some((region, name)) if is_region(region) => without_version(name),
        _ => model,
    }
}

/// Whether this is how a name begins for one region, such as `eu.`, or for none.
fn is_region(prefix: &str) -> bool {
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    prefix.is_empty()
        || prefix.strip_suffix('.').is_some_and(|word| !word.is_empty() && is_word(word))
}

/// The name without `-v1`, `-v1:0` and the like.
fn without_version(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once("-v") {
        Some((name, version)) if version.split(':').all(is_number) => name,
        _ => name,
    }
}

fn without_date(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => {
            name
        }
        Some((name, "latest")) => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::execution::TokenUsage;

    fn json_of(model: &str) -> serde_json::Value {
        serde_json::to_value(built_in_prices(model)).unwrap()
    }

    #[test]
    fn the_usual_models_have_their_list_prices() {
        for (model, [input, output, write_5m, write_1h, read]) in [
            ("claude-fable-5-2", [8.0, 40.0, 10.0, 16.0, 0.2]),
            ("claude-fable-5-1", [10.0, 50.0, 12.5, 20.0, 0.25]),
            ("claude-mythos-5", [10.0, 50.0, 12.5, 20.0, 1.0]),
            ("claude-opus-5-5", [4.0, 20.0, 5.0, 8.0, 0.2]),
            ("claude-opus-5", [5.0, 25.0, 6.25, 10.0, 0.5]),
            ("claude-opus-4-8", [5.0, 25.0, 6.25, 10.0, 0.5]),
            ("claude-opus-4-5-20251101", [5.0, 25.0, 6.25, 10.0, 0.5]),
            ("claude-opus-4-1-20250805", [15.0, 75.0, 18.75, 30.0, 1.5]),
            ("claude-opus-4-20250514", [15.0, 75.0, 18.75, 30.0, 1.5]),
            ("claude-sonnet-5-5", [2.0, 10.0, 2.5, 4.0, 0.1]),
            ("claude-sonnet-5", [2.0, 10.0, 2.5, 4.0, 0.2]),
            ("claude-sonnet-4-6", [3.0, 15.0, 3.75, 6.0, 0.3]),
            ("claude-3-7-sonnet-latest", [3.0, 15.0, 3.75, 6.0, 0.3]),
            ("claude-haiku-5-5", [0.1, 0.5, 0.125, 0.2, 0.01]),
            ("claude-haiku-4-5-20251001", [1.0, 5.0, 1.25, 2.0, 0.1]),
            ("claude-3-5-haiku-20241022", [0.8, 4.0, 1.0, 1.6, 0.08]),
        ] {
            let expected = json!({
                "input": input, "output": output, "cache_write_5m": write_5m,
                "cache_write_1h": write_1h, "cache_read": read,
            });
            assert_eq!(json_of(model), expected, "{model}");
        }
    }

    #[test]
    fn a_cost_is_that_of_claude_code() {
        // Input, output, cache writes of five minutes and cache reads, and the cost that it reported.
        for (model, [input, output, write, read], cost) in [
            ("claude-opus-5-5", [100, 40, 20, 30], 0.001306),
            ("claude-opus-5-5", [800, 264, 160, 240], 0.009328),
            ("claude-sonnet-5-5", [700, 280, 140, 210], 0.004571),
            ("claude-haiku-5-5", [300, 92, 60, 90], 0.0000844),
            ("claude-opus-4-8[1m]", [600, 184, 120, 180], 0.00844),
            ("claude-opus-4-8[1m]", [600, 240, 120, 180], 0.00984),
            ("eu.anthropic.claude-opus-5-5", [600, 184, 120, 180], 0.006716),
            ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", [200, 52, 40, 60], 0.000516),
        ] {
            let usage = TokenUsage {
                input_tokens: input,
                output_tokens: output,
                cache_write_5m_tokens: write,
                cache_read_tokens: read,
                ..TokenUsage::default()
            };
            let known = built_in_prices(model).map(|prices| json!(prices.cost(&usage)));
            assert_eq!(known, Some(json!(cost)), "{model}");
        }
    }

    #[test]
    fn long_contexts_regions_and_versions_are_the_same_model() {
        let same = built_in_prices("claude-sonnet-4-5");
        assert!(same.is_some());
        for model in [
            "claude-sonnet-4-5[1m]",
            "claude-sonnet-4-5-20250929[1m]",
            "anthropic.claude-sonnet-4-5-20250929-v1:0",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "global.anthropic.claude-sonnet-4-5-20250929-v1:0[1m]",
            "us-gov.anthropic.claude-sonnet-4-5-v1",
            "eu.anthropic.claude-sonnet-4-5",
        ] {
            assert_eq!(built_in_prices(model), same, "{model}");
        }
    }

    #[test]
    fn a_model_that_is_only_similar_has_no_prices() {
        for model in [
            "claude-opus-4-9",
            "claude-opus-4-1-2025",
            "claude-sonnet-4-5[2m]",
            "claude-sonnet-4-5-v1:0",
            "eu.anthropic.claude-sonnet-4-5-v",
            "eu.anthropic.claude-sonnet-4-5-vX:0",
            "my own anthropic.claude-sonnet-4-5",
            ".anthropic.claude-sonnet-4-5",
            "[1m]",
            "sonnet",
            "",
        ] {
            assert_eq!(built_in_prices(model), None, "{model}");
        }
    }
}
