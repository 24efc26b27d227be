//! Random nonsense in every place where a caller can put it: no panic, no fault of ours, and every
//! refusal in the one form that refusals have.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Uri};
use serde_json::json;
use shikiri_web::operations;

use crate::world::World;

/// A small generator (xorshift), so that a printed seed repeats a failure.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn noise(&mut self, most: usize) -> Vec<u8> {
        let length = self.roll(most);
        (0..length).map(|_| self.roll(256) as u8).collect()
    }

    /// Noise that may stand in an address.
    fn escaped(&mut self, most: usize) -> String {
        self.noise(most).iter().map(|byte| format!("%{byte:02X}")).collect()
    }

    fn id(&mut self, good: &str) -> String {
        match self.roll(4) {
            0 => good.to_owned(),
            1 => self.escaped(20),
            2 => "x".repeat(self.roll(300)),
            _ => self.pick(&["_system", "..", "-", "%2F", "run_", "null", "0"]).to_owned(),
        }
    }

    fn query(&mut self) -> String {
        let name = self.pick(&["limit", "cursor", "after", "status", "x"]);
        let value = match self.roll(3) {
            0 => self.escaped(20),
            1 => self.roll(usize::MAX).to_string(),
            _ => self.pick(&["", "-1", "0", "1", "1.5", "1f.run_1", ".", "ff."]).to_owned(),
        };
        format!("?{name}={value}")
    }

    fn body(&mut self) -> Vec<u8> {
        const GOOD: [&str; 10] = [
            r#"{"id":"a","name":"b","limits":{"max_streams":1,"requests_per_minute":null}}"#,
            r#"{"agent":"echo","input":{"n":[1,2,{"m":null}]},"idempotency_key":"k"}"#,
            r#"{"question_id":"q_1","action":"decline","answer":{"x":1e3}}"#,
            r#"{"input":{"n":2}}"#,
            r#"{"name":"\u00e9\ud83d\ude00"}"#,
            r#"{"id":"m","engine":"offline","aliases":["a"],"env":{"A":"b"},"prices":{"input":0.1}}"#,
            r#"{"name":"s","type":"http","url":"http://a/","headers_template":{"A":"${b}"}}"#,
            r#"{"name":"good","content":"x","files":{"a/b":"c"}}"#,
            r#"{"title":"t","session_id":null,"model_id":"offline","workspace_enabled":null}"#,
            "{}",
        ];
        let mut body = self.pick(&GOOD).as_bytes().to_vec();
        for _ in 0..self.roll(4) {
            let at = self.roll(body.len());
            match self.roll(3) {
                0 => body[at] = self.roll(256) as u8,
                1 => body.truncate(at.max(1)),
                _ => {
                    let piece = self.noise(40);
                    body.splice(at..at, piece);
                }
            }
        }
        body
    }
}

#[tokio::test]
async fn nonsense_is_refused_politely() {
    let world = World::new().await;
    let run = world.run("local", "echo", json!({})).await;
    world.append("local", &run, json!({}), true).await;
    let made = world.post("/v1/tenants/local/conversations", json!({})).await.json();
    let conversation = made["id"].as_str().unwrap().to_owned();
    let operations = operations();
    let seed = u64::from(std::process::id()) << 20 | 1;
    let mut dice = Dice(seed);
    let (end, mut sent) = (Instant::now() + Duration::from_secs(3), 0);
    while Instant::now() < end {
        let (method, path) = &operations[dice.roll(operations.len())];
        let path = path
            .replace("{t}", &dice.id("local"))
            .replace("{r}", &dice.id(&run))
            .replace("{key}", &dice.id("key_1"))
            .replace("{m}", &dice.id("offline"))
            .replace("{s}", &dice.id("mcp_1"))
            .replace("{name}", &dice.id("good"))
            .replace("{c}", &dice.id(&conversation))
            .replace("{e}", &dice.id("exe_1"))
            .replace("{path}", &dice.id("a.txt"));
        let query = if dice.roll(2) == 0 { dice.query() } else { String::new() };
        let address = format!("{path}{query}");
        if address.parse::<Uri>().is_err() {
            continue;
        }
        let body = dice.body();
        let mut request = Request::builder()
            .method(method.as_str())
            .uri(&address)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", world.admin))
            .header("content-type", "application/json");
        if dice.roll(4) == 0 {
            request = request.header("last-event-id", dice.roll(usize::MAX).to_string());
        }
        let answer = world.raw(request.body(Body::from(body.clone())).unwrap()).await;
        let status = answer.status.as_u16();
        let shown = String::from_utf8_lossy(&body);
        assert!(status < 500, "seed {seed}: {method} {address} {shown}: {}", answer.text);
        if status >= 400 {
            answer.problem();
        }
        sent += 1;
    }
    assert!(sent > 100, "only {sent} requests in 3 s");
}
