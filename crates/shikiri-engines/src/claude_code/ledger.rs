//! Who spent which tokens: from the stream, from the transcripts of subagents, and, to see whether
//! anything is missing, from what the CLI itself says in its results.

use std::collections::BTreeMap;

use serde_json::Value;
use shikiri_model::execution::{EngineMessage, Spender, Usage};

/// Requests by the id of their message.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    requests: BTreeMap<String, Request>,
    /// By the CLI's own count, for each model.
    counted: BTreeMap<String, Usage>,
    /// Whether its count tells caches of an hour from those of five minutes.
    is_split: bool,
}

#[derive(Debug)]
struct Request {
    who: Spender,
    model: String,
    usage: Usage,
    source: Source,
}

/// Sums over requests.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    whole: Usage,
    /// Of requests that were cut off.
    cut: Usage,
}

/// How much a number is worth; a better one replaces a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A message that tells only how its request began.
    Opening,
    /// The stream of a request that has not ended: cut off, if nothing more comes.
    Open,
    /// A request that has ended.
    Whole,
}

impl Ledger {
    /// What to tell about a request, if that is news.
    pub(super) fn spend(
        &mut self,
        who: Spender,
        id: &str,
        model: &str,
        usage: Usage,
        source: Source,
    ) -> Option<EngineMessage> {
        let known = self.requests.get(id);
        if known.is_some_and(|k| k.source > source || (k.source == source && k.usage == usage)) {
            return None;
        }
        // Told of another spender it would count twice.
        let who = known.map_or(who, |known| known.who.clone());
        let request = Request { who, model: model.to_owned(), usage, source };
        let told = request.told(id);
        self.requests.insert(id.to_owned(), request);
        Some(told)
    }

    /// More about a request whose beginning is known: the stream says what has changed.
    pub(super) fn add(&mut self, id: &str, told: &Value, source: Source) -> Option<EngineMessage> {
        let known = self.requests.get(id)?;
        let (who, model) = (known.who.clone(), known.model.clone());
        let usage = update(known.usage, told);
        self.spend(who, id, &model, usage, source)
    }

    /// Takes down the CLI's own count. A newer one tells what has come since its last result; an
    /// older one, what its process has spent so far.
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
            *self.counted.entry(plain(model).to_owned()).or_default() += Usage {
                input_tokens: number("inputTokens"),
                output_tokens: number("outputTokens"),
                cache_write_5m_tokens: written - hour,
                cache_write_1h_tokens: hour,
                cache_read_tokens: number("cacheReadInputTokens"),
            };
        }
    }

    /// What the CLI counted and no request of ours explains, such as its own summaries: it is the
    /// main thread's, so that the sum is right. If it counted less than we saw, that is told.
    pub(super) fn rest(&self) -> Vec<EngineMessage> {
        if self.counted.is_empty() {
            return Vec::new();
        }
        let mut ours = BTreeMap::<&str, Seen>::new();
        for request in self.requests.values() {
            let seen = ours.entry(plain(&request.model)).or_default();
            let is_cut = request.source == Source::Open;
            let sum = if is_cut { &mut seen.cut } else { &mut seen.whole };
            *sum += self.comparable(request.usage);
        }
        let counted = self.counted.values().copied().sum();
        let all = ours.values().copied().fold(Seen::default(), Seen::with);
        let missing = all.rest(counted);
        let of_model = |(model, count): (&String, &Usage)| {
            (model.clone(), ours.get(model.as_str()).copied().unwrap_or_default().rest(*count))
        };
        let mut rests: Vec<_> = self.counted.iter().map(of_model).collect();
        if rests.iter().map(|(_, rest)| *rest).sum::<Usage>() != missing {
            // The models go by other names there. The whole is right even so.
            rests.sort_by_key(|(_, rest)| rest.input_tokens + rest.output_tokens);
            rests = rests.pop().map(|(model, _)| (model, missing)).into_iter().collect();
        }
        let rests = rests.into_iter().filter(|(_, rest)| !rest.is_nothing());
        let mut told: Vec<_> = rests.map(|(model, usage)| rest(model, usage)).collect();
        let surplus = minus(all.whole, counted);
        if !surplus.is_nothing() {
            let surplus = serde_json::json!(surplus);
            let message =
                format!("Claude Code counted fewer tokens than its requests show: {surplus}");
            told.push(warning("USAGE_DIFFERS", message));
        }
        told
    }

    /// That a request was cut off, whose last tokens nobody knows.
    pub(super) fn cut(&self) -> Option<EngineMessage> {
        let cut = self.requests.values().filter(|r| r.source == Source::Open).count();
        (cut > 0).then(|| {
            let message = format!("requests that were cut off, their output not counted: {cut}");
            warning("USAGE_INCOMPLETE", message)
        })
    }

    fn comparable(&self, usage: Usage) -> Usage {
        if self.is_split {
            return usage;
        }
        let written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
        Usage { cache_write_5m_tokens: written, cache_write_1h_tokens: 0, ..usage }
    }
}

impl Request {
    fn told(&self, id: &str) -> EngineMessage {
        EngineMessage::Spent {
            who: self.who.clone(),
            request: id.to_owned(),
            model: self.model.clone(),
            usage: self.usage,
        }
    }
}

impl Seen {
    fn with(self, other: Self) -> Self {
        Self { whole: self.whole + other.whole, cut: self.cut + other.cut }
    }

    /// What is left of a count. The CLI counts a request that broke off and not one that was
    /// interrupted: if the count has room for what was cut off, it is in there.
    fn rest(self, counted: Usage) -> Usage {
        let missing = minus(counted, self.whole);
        let is_in_there = minus(self.cut, missing).is_nothing();
        if is_in_there { minus(missing, self.cut) } else { missing }
    }
}

fn rest(model: String, usage: Usage) -> EngineMessage {
    EngineMessage::Spent { who: Spender::Main, request: format!("rest:{model}"), model, usage }
}

fn warning(code: &'static str, message: String) -> EngineMessage {
    EngineMessage::Warning { code, message, server: None }
}

/// The name without what the CLI adds to it, such as `[1m]`.
fn plain(model: &str) -> &str {
    model.split_once('[').map_or(model, |(name, _)| name)
}

/// Usage in the API's form, over what was known before: a stream repeats only a part of it, and
/// some say 0 for what they do not repeat. An old count of cache writes that tells no time means
/// five minutes.
pub(super) fn update(known: Usage, told: &Value) -> Usage {
    let number = |name: &str| told[name].as_u64().filter(|number| *number > 0);
    let split = |name: &str, known| told["cache_creation"][name].as_u64().unwrap_or(known);
    let five = split("ephemeral_5m_input_tokens", known.cache_write_5m_tokens);
    let hour = split("ephemeral_1h_input_tokens", known.cache_write_1h_tokens);
    let written = number("cache_creation_input_tokens").unwrap_or(five.saturating_add(hour));
    let hour = hour.min(written);
    Usage {
        input_tokens: number("input_tokens").unwrap_or(known.input_tokens),
        output_tokens: number("output_tokens").unwrap_or(known.output_tokens),
        cache_write_5m_tokens: written - hour,
        cache_write_1h_tokens: hour,
        cache_read_tokens: number("cache_read_input_tokens").unwrap_or(known.cache_read_tokens),
    }
}

fn minus(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.saturating_sub(b.input_tokens),
        output_tokens: a.output_tokens.saturating_sub(b.output_tokens),
        cache_write_5m_tokens: a.cache_write_5m_tokens.saturating_sub(b.cache_write_5m_tokens),
        cache_write_1h_tokens: a.cache_write_1h_tokens.saturating_sub(b.cache_write_1h_tokens),
        cache_read_tokens: a.cache_read_tokens.saturating_sub(b.cache_read_tokens),
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
