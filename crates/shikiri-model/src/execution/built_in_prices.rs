//! List prices of Anthropic's usual models, for a model whose record has no prices of its own. They
//! are those of the Claude API for requests of up to 200,000 input tokens; a provider's discount or
//! surcharge is not in them. Names of other providers, such as Bedrock's, have no prices here.

use super::token_usage::{ModelPrices, TokenPrice};

/// The day on which the prices were current.
pub const PRICES_AS_OF: &str = "2025-12-01";

/// Dollars per million tokens, in millionths: the input and the output. A cache write costs 1.25
/// times the input for five minutes and twice the input for an hour, a cache read a tenth of it.
const fn list_prices(input: u64, output: u64) -> ModelPrices {
    ModelPrices {
        input: TokenPrice::from_micros(input),
        output: TokenPrice::from_micros(output),
        cache_write_5m: TokenPrice::from_micros(input + input / 4),
        cache_write_1h: TokenPrice::from_micros(input * 2),
        cache_read: TokenPrice::from_micros(input / 10),
    }
}

const OPUS_4: ModelPrices = list_prices(15_000_000, 75_000_000);
const OPUS_4_5: ModelPrices = list_prices(5_000_000, 25_000_000);
const SONNET: ModelPrices = list_prices(3_000_000, 15_000_000);
const HAIKU_4_5: ModelPrices = list_prices(1_000_000, 5_000_000);
const HAIKU_3_5: ModelPrices = list_prices(800_000, 4_000_000);

/// Each name also stands for its dated forms, such as `claude-haiku-4-5-20251001`.
const BUILT_IN: [(&str, ModelPrices); 12] = [
    ("claude-opus-4-5", OPUS_4_5),
    ("claude-opus-4-1", OPUS_4),
    ("claude-opus-4-0", OPUS_4),
    ("claude-opus-4", OPUS_4),
    ("claude-sonnet-4-5", SONNET),
    ("claude-sonnet-4-0", SONNET),
    ("claude-sonnet-4", SONNET),
    ("claude-3-7-sonnet", SONNET),
    ("claude-3-7-sonnet-latest", SONNET),
    ("claude-haiku-4-5", HAIKU_4_5),
    ("claude-3-5-haiku", HAIKU_3_5),
    ("claude-3-5-haiku-latest", HAIKU_3_5),
];

/// The list prices of a model, by the name that its provider reports.
pub fn built_in_prices(model: &str) -> Option<&'static ModelPrices> {
    let is_dated = |rest: &str| {
        let date = rest.strip_prefix('-').unwrap_or_default();
        date.len() == 8 && date.bytes().all(|digit| digit.is_ascii_digit())
    };
    let found = BUILT_IN.iter().find(|(name, _)| {
        model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || is_dated(rest))
    });
    found.map(|(_, prices)| prices)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn json_of(model: &str) -> serde_json::Value {
        serde_json::to_value(built_in_prices(model)).unwrap()
    }

    #[test]
    fn the_usual_models_have_their_list_prices() {
        for (model, [input, output, write_5m, write_1h, read]) in [
            ("claude-opus-4-5-20251101", [5.0, 25.0, 6.25, 10.0, 0.5]),
            ("claude-opus-4-1-20250805", [15.0, 75.0, 18.75, 30.0, 1.5]),
            ("claude-opus-4-20250514", [15.0, 75.0, 18.75, 30.0, 1.5]),
            ("claude-sonnet-4-5", [3.0, 15.0, 3.75, 6.0, 0.3]),
            ("claude-3-7-sonnet-latest", [3.0, 15.0, 3.75, 6.0, 0.3]),
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
    fn a_model_that_is_only_similar_has_no_prices() {
        for model in [
            "claude-opus-4-9",
            "claude-opus-4-1-2025",
            "claude-sonnet-4-5[1m]",
            "claude-sonnet-4-5-20250929-v1:0",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "sonnet",
            "",
        ] {
            assert_eq!(built_in_prices(model), None, "{model}");
        }
    }
}
