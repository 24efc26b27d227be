use serde_json::{Value, json};

use super::*;

/// A router with two clients.
fn router() -> RelayRouter {
    let mut router = RelayRouter::default();
    router.add_client(1);
    router.add_client(2);
    router
}

impl RelayRouter {
    /// What a client's command becomes.
    fn command(&mut self, client: RelayClientId, command: &Value) -> RelayDelivery {
        self.client_message(client, command.to_string().as_bytes()).unwrap()
    }

    fn chrome(&mut self, message: &Value) -> Option<RelayDelivery> {
        self.chrome_message(message.to_string().as_bytes())
    }

    /// Attaches a client to a tab.
    fn attach(&mut self, client: RelayClientId, session: &str) {
        let method = "Target.attachToTarget";
        let sent = self
            .command(client, &json!({ "id": 1, "method": method, "params": { "targetId": "T" } }));
        let answer = json!({ "id": to_chrome(&sent)["id"], "result": { "sessionId": session } });
        assert_eq!(to_client(&self.chrome(&answer).unwrap(), client)["id"], 1);
    }
}

#[track_caller]
fn to_chrome(delivery: &RelayDelivery) -> Value {
    let RelayDelivery::ToChrome(message) = delivery else { panic!("{delivery:?}") };
    serde_json::from_slice(message).unwrap()
}

#[track_caller]
fn to_client(delivery: &RelayDelivery, client: RelayClientId) -> Value {
    let RelayDelivery::ToClient(whose, message) = delivery else { panic!("{delivery:?}") };
    assert_eq!(*whose, client);
    serde_json::from_slice(message).unwrap()
}

#[test]
fn answers_reach_their_client_with_its_own_ids() {
    let mut router = router();
    let ask = json!({ "id": 7, "method": "Browser.getVersion" });
    let first = to_chrome(&router.command(1, &ask))["id"].clone();
    let second = to_chrome(&router.command(2, &ask))["id"].clone();
    assert_ne!(first, second);
    let answer = router.chrome(&json!({ "id": second, "result": { "x": [1, null] } })).unwrap();
    assert_eq!(to_client(&answer, 2), json!({ "id": 7, "result": { "x": [1, null] } }));
    let answer = router.chrome(&json!({ "id": first, "error": { "message": "no" } })).unwrap();
    assert_eq!(to_client(&answer, 1), json!({ "id": 7, "error": { "message": "no" } }));
    assert_eq!(router.chrome(&json!({ "id": first, "result": {} })), None, "answered once");
}

#[test]
fn a_session_is_for_the_client_that_attached_it() {
    let mut router = router();
    router.attach(1, "S");
    let command = json!({ "id": 2, "method": "Page.enable", "sessionId": "S" });
    assert_eq!(to_chrome(&router.command(1, &command))["sessionId"], "S");
    let refused = to_client(&router.command(2, &command), 2);
    assert_eq!(refused["error"]["message"], "this session is none of yours");

    let crash = json!({ "method": "Inspector.targetCrashed", "params": {}, "sessionId": "S" });
    assert_eq!(to_client(&router.chrome(&crash).unwrap(), 1), crash);
    let noise = json!({ "method": "Page.frameNavigated", "params": {}, "sessionId": "S" });
    assert_eq!(router.chrome(&noise), None, "clients do not receive it");
    let gone = json!({ "method": "Target.detachedFromTarget", "params": { "sessionId": "S" } });
    assert_eq!(to_client(&router.chrome(&gone).unwrap(), 1), gone);
    assert_eq!(router.chrome(&crash), None);
    assert!(matches!(router.command(1, &command), RelayDelivery::ToClient(..)));
}

#[test]
fn a_removed_client_leaves_no_session_and_no_tab() {
    let mut router = router();
    router.attach(1, "S");
    router.attach(2, "other");
    let attach =
        json!({ "id": 2, "method": "Target.attachToTarget", "params": { "targetId": "T" } });
    let attaching = to_chrome(&router.command(1, &attach))["id"].clone();
    let create =
        json!({ "id": 3, "method": "Target.createTarget", "params": { "url": "about:blank" } });
    let creating = to_chrome(&router.command(1, &create))["id"].clone();
    let left = router.remove_client(1);
    assert_eq!(left.len(), 1);
    let sent = to_chrome(&left[0]);
    assert_eq!(
        (&sent["method"], &sent["params"]["sessionId"]),
        (&json!("Target.detachFromTarget"), &json!("S"))
    );
    let late = router.chrome(&json!({ "id": attaching, "result": { "sessionId": "late" } }));
    assert_eq!(to_chrome(&late.unwrap())["params"]["sessionId"], "late");
    let late = router.chrome(&json!({ "id": creating, "result": { "targetId": "N" } }));
    let sent = to_chrome(&late.unwrap());
    assert_eq!(
        (&sent["method"], &sent["params"]["targetId"]),
        (&json!("Target.closeTarget"), &json!("N"))
    );
}

#[test]
fn one_client_cannot_fill_the_pipe() {
    let mut router = router();
    let ask = json!({ "id": 1, "method": "Browser.getVersion" });
    for _ in 0..MAX_PENDING {
        assert!(matches!(router.command(1, &ask), RelayDelivery::ToChrome(_)));
    }
    let refused = to_client(&router.command(1, &ask), 1);
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("too many"), "{refused}");
    assert!(matches!(router.command(2, &ask), RelayDelivery::ToChrome(_)), "others go on");
    assert!(router.chrome(&json!({ "id": 1, "result": {} })).is_some());
    assert!(matches!(router.command(1, &ask), RelayDelivery::ToChrome(_)), "and so does it");
}

#[test]
fn an_oversized_answer_becomes_an_error_for_its_client() {
    let mut router = router();
    let sent = to_chrome(&router.command(2, &json!({ "id": 9, "method": "Target.getTargets" })));
    let head = format!("{{\"id\":{},\"result\":{{\"x\":\"ああ", sent["id"]);
    // The head ends within a character.
    let sent = router.chrome_message_too_long(&head.as_bytes()[..head.len() - 1]).unwrap();
    assert_eq!(to_client(&sent, 2)["error"]["message"], "the answer is too long");
    assert_eq!(to_client(&sent, 2)["id"], 9);
    for nonsense in
        ["", "{\"id\":", "{\"id\":x", "{\"method\":\"x\"", "{\"id\":99999999999999999999,"]
    {
        assert_eq!(router.chrome_message_too_long(nonsense.as_bytes()), None, "{nonsense}");
    }
}

#[test]
fn malformed_commands_are_refused() {
    let mut router = router();
    let wrong = [
        "",
        "[]",
        "{}",
        r#"{"id":"1","method":"Browser.getVersion"}"#,
        r#"{"id":1}"#,
        r#"{"id":1,"method":"Browser.getVersion","more":1}"#,
        r#"{"id":1,"id":2,"method":"Browser.getVersion"}"#,
        "{\"id\":1,\"method\":\"Browser.getVersion\"}\n{}",
    ];
    for text in wrong {
        assert_eq!(router.client_message(1, text.as_bytes()), Err(MalformedCommand), "{text}");
    }
    let cookies = json!({ "id": 4, "method": "Storage.getCookies" });
    let refused = to_client(&router.command(1, &cookies), 1);
    let text = "Storage.getCookies is not allowed here";
    assert_eq!(refused, json!({ "id": 4, "error": { "code": -32_000, "message": text } }));
}
