//! Decides which addresses are chats that can be continued.

/// Addresses of chats are shorter than this.
const MAX_URL: usize = 2_000;

/// The start pages of the known providers and the paths of their chats.
const KNOWN: [(&str, &str); 3] =
    [("chatgpt.com", "c"), ("chat.openai.com", "c"), ("gemini.google.com", "app")];

/// Whether a chat may be stored under this address. At the known providers, a chat has an id after
/// a known path segment; start, login and search pages have none. For other providers the driver
/// knows the pattern, and here the address must only be below the start page.
pub fn is_chat_url(url: &str) -> bool {
    let Some((host, path)) = split(url) else { return false };
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match KNOWN.iter().find(|(known, _)| *known == host) {
        Some((_, word)) => parts.any(|part| part == *word) && parts.next().is_some(),
        None => parts.next().is_some(),
    }
}

/// Whether this is the address of a web page.
pub fn is_web(url: &str) -> bool {
    split(url).is_some()
}

/// The host (in lower case, with its port) and the path.
fn split(url: &str) -> Option<(String, &str)> {
    if url.len() > MAX_URL || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return None;
    }
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // An address with a user name or password is not a chat.
    if host.is_empty() || host.contains(['@', '\\']) {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some((host.to_ascii_lowercase(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chats_are_kept() {
        for good in [
            "https://chatgpt.com/c/abc123",
            "https://chatgpt.com/c/abc123?model=x#top",
            "https://chatgpt.com/g/g-123-tutor/c/abc",
            "https://ChatGPT.com/c/abc",
            "https://chat.openai.com/c/1",
            "https://gemini.google.com/app/xyz789",
            "http://127.0.0.1:4711/chat/5",
        ] {
            assert!(is_chat_url(good), "{good}");
        }
        for bad in [
            "https://chatgpt.com/",
            "https://chatgpt.com",
            "https://chatgpt.com/?q=/c/abc",
            "https://chatgpt.com/c/",
            "https://chatgpt.com/auth/login",
            "https://gemini.google.com/app",
            "https://gemini.google.com/c/abc",
            "https://accounts.google.com@evil.example/app/1",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "chrome://settings/x",
            "http:///x",
            "https://a b/c/1",
            "https://x/c/1\n",
            "",
        ] {
            assert!(!is_chat_url(bad), "{bad}");
        }
        assert!(!is_chat_url(&format!("https://x.example/{}", "a".repeat(2_000))));
        assert!(is_web("https://chatgpt.com/") && !is_web("ftp://x/y"));
    }
}
