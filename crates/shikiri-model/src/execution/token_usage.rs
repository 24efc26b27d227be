//! Exact token counts and costs: whole numbers of tokens, prices in millionths of a dollar per
//! million tokens, and costs in the product of the two units, so that no sum is rounded.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The tokens of one or several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    #[serde(default)]
    pub cache_write_5m_tokens: u64,
    #[serde(default)]
    pub cache_write_1h_tokens: u64,
    #[serde(default)]
    pub cache_read_tokens: u64,
}

impl TokenUsage {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Add for TokenUsage {
    type Output = Self;

    /// Saturates, because a wrong count from a model must not stop the accounting.
    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_write_5m_tokens: self
                .cache_write_5m_tokens
                .saturating_add(other.cache_write_5m_tokens),
            cache_write_1h_tokens: self
                .cache_write_1h_tokens
                .saturating_add(other.cache_write_1h_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
        }
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for TokenUsage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Dollars per million tokens, in millionths of a dollar. In JSON a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenPrice(u64);

/// Prices above this are typing errors.
const HIGHEST_PRICE: f64 = 1_000_000.0;
const MICROS: f64 = 1_000_000.0;

impl TokenPrice {
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    fn from_dollars(dollars: f64) -> Result<Self, String> {
        let micros = dollars * MICROS;
        if !(0.0..=HIGHEST_PRICE).contains(&dollars) {
            return Err("a price is a number of dollars from 0 to 1,000,000".to_owned());
        }
        if (micros - micros.round()).abs() > 1e-3 {
            return Err("a price has at most six decimals".to_owned());
        }
        // The conversion is exact: range and fraction were checked above.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        Ok(Self(micros.round() as u64))
    }

    #[expect(clippy::cast_precision_loss, reason = "at most 10¹², far below 2⁵³")]
    fn dollars(self) -> f64 {
        self.0 as f64 / MICROS
    }
}

impl Serialize for TokenPrice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for TokenPrice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_dollars(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The prices of a model, per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrices {
    #[serde(default)]
    pub input: TokenPrice,
    #[serde(default)]
    pub output: TokenPrice,
    #[serde(default)]
    pub cache_write_5m: TokenPrice,
    #[serde(default)]
    pub cache_write_1h: TokenPrice,
    #[serde(default)]
    pub cache_read: TokenPrice,
}

impl ModelPrices {
    pub fn cost(&self, usage: &TokenUsage) -> Cost {
        let part = |tokens: u64, price: TokenPrice| u128::from(tokens) * u128::from(price.0);
        let parts = [
            part(usage.input_tokens, self.input),
            part(usage.output_tokens, self.output),
            part(usage.cache_write_5m_tokens, self.cache_write_5m),
            part(usage.cache_write_1h_tokens, self.cache_write_1h),
            part(usage.cache_read_tokens, self.cache_read),
        ];
        Cost(parts.into_iter().fold(0, u128::saturating_add))
    }
}

/// Money, in 10⁻¹² dollars. In JSON a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u128);

const PICOS: u128 = 1_000_000_000_000;

impl Cost {
    /// The nearest floating-point number, which prints the digits of the exact amount.
    pub fn dollars(self) -> f64 {
        // Parsed from the digits, because dividing two rounded parts would round twice.
        format!("{}.{:012}", self.0 / PICOS, self.0 % PICOS).parse().unwrap_or(f64::MAX)
    }

    /// None if the number is not an amount of money.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        if !(0.0..1e18).contains(&dollars) {
            return None;
        }
        let digits = format!("{dollars:.12}");
        let (whole, part) = digits.split_once('.').unwrap_or((&digits, "0"));
        let number = |text: &str| text.parse::<u128>().ok();
        Some(Self(number(whole)? * PICOS + number(part)?))
    }

    /// The amount in 10⁻¹² dollars.
    pub fn picos(self) -> u128 {
        self.0
    }

    pub fn from_picos(picos: u128) -> Self {
        Self(picos)
    }

    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// How many times `one` fits into it; `u64::MAX` if `one` is zero.
    pub fn parts_of(self, one: Self) -> u64 {
        self.0.checked_div(one.0).map_or(u64::MAX, |many| u64::try_from(many).unwrap_or(u64::MAX))
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

/// Reads the digits of a number of dollars, down to 10⁻¹².
impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::from_dollars(dollars).ok_or_else(|| D::Error::custom("not an amount of dollars"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prices() -> ModelPrices {
        serde_json::from_value(json!({
            "input": 3, "output": 15, "cache_write_5m": 3.75, "cache_write_1h": 6, "cache_read": 0.3
        }))
        .unwrap()
    }

    #[test]
    fn a_cost_is_the_exact_product_and_prints_its_own_digits() {
        let usage = TokenUsage {
            input_tokens: 7,
            output_tokens: 1,
            cache_write_5m_tokens: 1,
            cache_write_1h_tokens: 1,
            cache_read_tokens: 1,
        };
        let cost = prices().cost(&usage);
        // 21 + 15 + 3.75 + 6 + 0.3 millionths of a dollar.
        assert_eq!(serde_json::to_string(&cost).unwrap(), "0.00004605");
        assert_eq!(serde_json::from_str::<Cost>("0.00004605").unwrap(), cost);
    }

    #[test]
    fn parts_add_up_to_the_whole_whatever_the_order() {
        let one =
            |n| TokenUsage { input_tokens: n, cache_read_tokens: 3 * n, ..TokenUsage::default() };
        let all: Vec<_> = (1..=1_000).map(one).collect();
        let apart: Cost = all.iter().rev().map(|usage| prices().cost(usage)).sum();
        assert_eq!(apart, prices().cost(&all.iter().copied().sum()));
    }

    #[test]
    fn prices_that_nobody_means_are_refused() {
        for bad in ["-1", "1e7", "0.0000001", "\"3\"", "null"] {
            assert!(serde_json::from_str::<TokenPrice>(bad).is_err(), "{bad}");
        }
        let prices: ModelPrices = serde_json::from_value(json!({ "input": 0.25 })).unwrap();
        assert_eq!(serde_json::to_value(prices).unwrap()["input"], json!(0.25));
    }

    #[test]
    fn a_claim_of_endless_tokens_does_not_stop_the_counting() {
        let many =
            TokenUsage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..TokenUsage::default() };
        assert_eq!((many + many).input_tokens, u64::MAX);
        let highest = ModelPrices { input: TokenPrice::from_micros(1_000_000_000_000), ..prices() };
        assert!(highest.cost(&many) + highest.cost(&many) > Cost::default());
    }
}
