//! Words that are secrets, and the search for them.

use shikiri_testkit::{Answer, Rng};

/// One secret of each kind, and a word that is none.
#[derive(Clone)]
pub(super) struct Canaries {
    /// In `tokens`.
    pub(super) token: String,
    /// In the server's environment.
    pub(super) server_env: String,
    /// In a model's `env`.
    pub(super) model_env: String,
    /// No secret: a search that does not find it finds nothing.
    pub(super) plain: String,
}

impl Canaries {
    pub(super) fn new() -> Self {
        let mut rng = Rng::seeded("secrets");
        let mut word = |kind: &str| format!("{kind}-{:016x}", rng.next());
        Self {
            token: word("token"),
            server_env: word("server"),
            model_env: word("model"),
            plain: word("plain"),
        }
    }

    pub(super) fn secrets(&self) -> [&str; 3] {
        [&self.token, &self.server_env, &self.model_env]
    }

    /// Also a part of a secret is one: what was cut short still tells.
    #[track_caller]
    pub(super) fn look(&self, place: &str, bytes: &[u8]) {
        for secret in self.secrets() {
            assert!(!holds(bytes, head(secret)), "{secret} is in {place}: {}", show(bytes, secret));
        }
    }

    #[track_caller]
    pub(super) fn in_answer(&self, place: &str, answer: &Answer) {
        self.look(place, &answer.body);
        self.look(place, format!("{:?}", answer.headers).as_bytes());
    }
}

/// What of a word is looked for.
pub(super) fn head(word: &str) -> &str {
    &word[..word.len() * 2 / 3]
}

pub(super) fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

pub(super) fn show(bytes: &[u8], word: &str) -> String {
    let word = head(word).as_bytes();
    let at = bytes.windows(word.len()).position(|window| window == word).unwrap_or(0);
    let near = &bytes[at.saturating_sub(200)..bytes.len().min(at + 100)];
    String::from_utf8_lossy(near).into_owned()
}
