//! Counts tokens per spender, from the stream and from the transcripts of subagents. The CLI's own
//! count in its results shows whether anything is missing.

use std::collections::BTreeMap;

use serde_json::Value;
use shikiri_model::execution::{EngineMessage, TokenSpender, TokenUsage};
use shikiri_model::run::WarningCode;

/// Requests by the id of their message.
#[derive(Debug, Default)]
pub(super) struct CliUsageLedger {
    requests: BTreeMap<String, LedgerRequest>,
    /// The CLI's own count for each model.
    counted: BTreeMap<String, TokenUsage>,
    /// Whether the CLI counts one-hour cache writes separately from five-minute ones.
    is_split: bool,
}

#[derive(Debug)]
struct LedgerRequest {
    spender: TokenSpender,
    model: String,
    usage: TokenUsage,
    source: UsageQuality,
}

/// The sums of a model's requests.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedUsage {
    whole: TokenUsage,
    /// The usage of requests that were cut off.
    cut: TokenUsage,
}

/// The reliability of a number; a better one replaces a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UsageQuality {
    /// From a message, which shows only the start of its request.
    Opening,
    /// From the stream of an unfinished request.
    Open,
    /// From a finished request.
    Whole,
}

impl CliUsageLedger {
    /// Records the usage of a request. Returns a message if the number is new.
    pub(super) fn spend(
        &mut self,
        spender: TokenSpender,
        id: &str,
        model: &str,
        usage: TokenUsage,
        source: UsageQuality,
    ) -> Option<EngineMessage> {
        let known = self.requests.get(id);
        if known.is_some_and(|k| k.source > source || (k.source == source && k.usage == usage)) {
            return None;
        }
        // The spender stays the same, or the usage would count twice.
        let spender = known.map_or(spender, |known| known.spender.clone());
        let request = LedgerRequest { spender, model: model.to_owned(), usage, source };
        let message = request.spent_message(id);
        self.requests.insert(id.to_owned(), request);
        Some(message)
    }

    /// Updates a known request with the changes that the stream reports.
    pub(super) fn add(
        &mut self,
        id: &str,
        reported: &Value,
        source: UsageQuality,
    ) -> Option<EngineMessage> {
        let known = self.requests.get(id)?;
        let (spender, model) = (known.spender.clone(), known.model.clone());
        let usage = update(known.usage, reported);
        self.spend(spender, id, &model, usage, source)
    }

    /// Records the CLI's own count. Newer versions count since their last result, older ones since the
    /// start of the process.
    pub(super) fn count(&mut self, result: &Value) {
        let since = result["model_usage_since_last_result"].as_object();
        if since.is_none() {
            self.counted.clear();
        }
        for (model, count) in since.or(result["modelUsage"].as_object()).into_iter().flatten() {
            let number = |name: &str| count[name].as_u64().unwrap_or(0);
            let hour = count["cacheCreationEphemeral1hInputTokens"].as_u64();
            self.is_split |= hour.is_some();
            let written = number("cacheCreationInputTokens");
            let hour = hour.unwrap_or(0).min(written);
            *self.counted.entry(plain(model).to_owned()).or_default() += TokenUsage {
                input_tokens: number("inputTokens"),
                output_tokens: number("outputTokens"),
                cache_write_5m_tokens: written - hour,
                cache_write_1h_tokens: hour,
                cache_read_tokens: number("cacheReadInputTokens"),
            };
        }
    }

    /// Usage that the CLI counted beyond the known requests, such as for its summaries. It goes to the
    /// main thread, so that the sum is right. Warns if the CLI counted less than its requests show.
    pub(super) fn unexplained_usage(&self) -> Vec<EngineMessage> {
        if self.counted.is_empty() {
            return Vec::new();
        }
        let mut ours = BTreeMap::<&str, ObservedUsage>::new();
        for request in self.requests.values() {
            let seen = ours.entry(plain(&request.model)).or_default();
            let is_cut = request.source == UsageQuality::Open;
            let sum = if is_cut { &mut seen.cut } else { &mut seen.whole };
            *sum += self.comparable(request.usage);
        }
        let counted = self.counted.values().copied().sum();
        let all = ours.values().copied().fold(ObservedUsage::default(), ObservedUsage::with);
        let missing = all.rest(counted);
        let of_model = |(model, count): (&String, &TokenUsage)| {
            (model.clone(), ours.get(model.as_str()).copied().unwrap_or_default().rest(*count))
        };
        let mut rests: Vec<_> = self.counted.iter().map(of_model).collect();
        if rests.iter().map(|(_, rest)| *rest).sum::<TokenUsage>() != missing {
            // The CLI uses other names for the models; the total is still right.
            rests.sort_by_key(|(_, rest)| rest.input_tokens + rest.output_tokens);
            rests = rests.pop().map(|(model, _)| (model, missing)).into_iter().collect();
        }
        let rests = rests.into_iter().filter(|(_, rest)| !rest.is_nothing());
        let mut messages: Vec<_> = rests.map(|(model, usage)| rest(model, usage)).collect();
        let surplus = minus(all.whole, counted);
        if !surplus.is_nothing() {
            let surplus = serde_json::json!(surplus);
            let message =
                format!("Claude Code counted fewer tokens than its requests show: {surplus}");
            messages.push(warning(WarningCode::UsageDiffers, message));
        }
        messages
    }

    /// A warning if requests were cut off, whose last tokens are unknown.
    pub(super) fn incomplete_usage_warning(&self) -> Option<EngineMessage> {
        let cut = self.requests.values().filter(|r| r.source == UsageQuality::Open).count();
        (cut > 0).then(|| {
            let message = format!("requests that were cut off, their output not counted: {cut}");
            warning(WarningCode::UsageIncomplete, message)
        })
    }

    fn comparable(&self, usage: TokenUsage) -> TokenUsage {
        if self.is_split {
            return usage;
        }
        let written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
        TokenUsage { cache_write_5m_tokens: written, cache_write_1h_tokens: 0, ..usage }
    }
}

impl LedgerRequest {
    fn spent_message(&self, id: &str) -> EngineMessage {
        EngineMessage::Spent {
            who: self.spender.clone(),
            request: id.to_owned(),
            model: self.model.clone(),
            usage: self.usage,
        }
    }
}

impl ObservedUsage {
    fn with(self, other: Self) -> Self {
        Self { whole: self.whole + other.whole, cut: self.cut + other.cut }
    }

    /// The unexplained part of a count. The CLI counts a request that failed but not one that was
    /// interrupted: cut-off usage is subtracted if the count is large enough for it.
    fn rest(self, counted: TokenUsage) -> TokenUsage {
        let missing = minus(counted, self.whole);
        let is_counted = minus(self.cut, missing).is_nothing();
        if is_counted { minus(missing, self.cut) } else { missing }
    }
}

fn rest(model: String, usage: TokenUsage) -> EngineMessage {
    EngineMessage::Spent { who: TokenSpender::Main, request: format!("rest:{model}"), model, usage }
}

fn warning(code: WarningCode, message: String) -> EngineMessage {
    EngineMessage::Warning { code, message, server: None }
}

/// A model's name without the CLI's suffix, such as `[1m]`.
fn plain(model: &str) -> &str {
    model.split_once('[').map_or(model, |(name, _)| name)
}

/// Updates usage with numbers in the API's format. A stream repeats only some of them, and some
/// streams report 0 for the others. Cache writes without a duration count as five-minute ones.
pub(super) fn update(known: TokenUsage, reported: &Value) -> TokenUsage {
    let number = |name: &str| reported[name].as_u64().filter(|number| *number > 0);
    let split = |name: &str, known| reported["cache_creation"][name].as_u64().unwrap_or(known);
    let five = split("ephemeral_5m_input_tokens", known.cache_write_5m_tokens);
    let hour = split("ephemeral_1h_input_tokens", known.cache_write_1h_tokens);
    let written = number("cache_creation_input_tokens").unwrap_or(five.saturating_add(hour));
    let hour = hour.min(written);
    TokenUsage {
        input_tokens: number("input_tokens").unwrap_or(known.input_tokens),
        output_tokens: number("output_tokens").unwrap_or(known.output_tokens),
        cache_write_5m_tokens: written - hour,
        cache_write_1h_tokens: hour,
        cache_read_tokens: number("cache_read_input_tokens").unwrap_or(known.cache_read_tokens),
    }
}

fn minus(a: TokenUsage, b: TokenUsage) -> TokenUsage {
    TokenUsage {
        input_tokens: a.input_tokens.saturating_sub(b.input_tokens),
        output_tokens: a.output_tokens.saturating_sub(b.output_tokens),
        cache_write_5m_tokens: a.cache_write_5m_tokens.saturating_sub(b.cache_write_5m_tokens),
        cache_write_1h_tokens: a.cache_write_1h_tokens.saturating_sub(b.cache_write_1h_tokens),
        cache_read_tokens: a.cache_read_tokens.saturating_sub(b.cache_read_tokens),
    }
}

#[cfg(test)]
#[path = "usage_ledger_tests.rs"]
mod tests;
