//! Controls a started browser through its keeper's socket, like another process of its user.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

pub struct KeeperClient {
    stream: BufReader<UnixStream>,
    last_id: u64,
}

impl KeeperClient {
    /// Connects to the browser of a folder such as `.shikiri/browser/local`.
    pub fn connect(browser: &Path) -> Self {
        let token = std::fs::read(browser.join("devtools.token")).expect("the keeper's token");
        Self::connect_with(browser, &token).expect("the keeper's socket")
    }

    /// Connects with a given token.
    pub fn connect_with(browser: &Path, token: &[u8]) -> io::Result<Self> {
        let mut stream = UnixStream::connect(browser.join("devtools.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(token)?;
        stream.write_all(b"\0")?;
        Ok(Self { stream: BufReader::new(stream), last_id: 0 })
    }

    /// The whole response to a command; an error if the keeper closes the connection.
    pub fn try_call(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.last_id += 1;
        let command = json!({ "id": self.last_id, "method": method, "params": params });
        self.stream.get_mut().write_all(format!("{command}\0").as_bytes())?;
        let mut answer = Vec::new();
        self.stream.read_until(0, &mut answer)?;
        if answer.pop() != Some(0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_slice(&answer).map_err(io::Error::other)
    }

    /// The result of a successful command.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.try_call(method, params).expect("an answer");
        assert!(answer["result"].is_object(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The browser's tabs: their ids and addresses.
    pub fn tabs(&mut self) -> Vec<(String, String)> {
        let listed = self.call("Target.getTargets", &json!({}));
        let text = |info: &Value, name: &str| info[name].as_str().unwrap_or_default().to_owned();
        let infos = listed["targetInfos"].as_array().expect("a list").iter();
        infos
            .filter(|info| info["type"] == "page")
            .map(|info| (text(info, "targetId"), text(info, "url")))
            .collect()
    }

    /// Closes a tab, as a person would.
    pub fn close_tab(&mut self, tab: &str) {
        match self.try_call("Target.closeTarget", &json!({ "targetId": tab })) {
            Ok(answer) => assert!(answer["result"].is_object(), "{answer}"),
            // A browser ends with its last window, perhaps before the response is read.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}"),
        }
    }
}
