//! Each source ends in a request to Bedrock, whose signature names the keys.

use super::*;

#[tokio::test]
async fn keys_in_variables_are_used_before_a_profile() {
    let profile = "[default]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = s\n";
    let machine = Machine::new(profile).await;
    let machine = machine.set("AWS_ACCESS_KEY_ID", " AKIAVARIABLE ");
    let machine = machine.set("AWS_SECRET_ACCESS_KEY", CANARY).set("AWS_SESSION_TOKEN", "");
    machine.ask().await.unwrap();
    machine.assert_signed_by("AKIAVARIABLE", None);
}

#[tokio::test]
async fn a_profile_is_found_in_both_files() {
    let config = "[default]\nregion=eu-west-1\n[work]\nregion=wrong\n\
                  [profile work]\nregion = ap-northeast-1\n";
    let keys = "# 鍵\n[default]\naws_access_key_id = A1\naws_secret_access_key=s=1\n\
                [ work ]\naws_access_key_id=A2\naws_secret_access_key=s2\naws_session_token=t2\n";
    for (profile, scope, token) in
        [("", "A1/DAY/eu-west-1/", None), ("work", "A2/DAY/ap-northeast-1/", Some("t2"))]
    {
        let mut machine = Machine::new(config).await.set("AWS_PROFILE", profile);
        machine.env.remove("AWS_REGION");
        write(&machine.home.path().join(".aws/credentials"), keys);
        machine.ask().await.unwrap();
        let arrived = machine.bedrock.one();
        let day = &arrived.header("x-amz-date")[..8];
        let scope = scope.replace("DAY", day);
        assert!(arrived.header("authorization").contains(&scope), "{arrived:?}");
        assert_eq!(arrived.maybe("x-amz-security-token"), token);
    }
    let missing = Machine::new(config).await.set("AWS_PROFILE", "wrok");
    assert!(missing.refusal().await.contains("\"wrok\""));
}

#[tokio::test]
async fn a_role_is_assumed_with_the_keys_of_its_source() {
    let by_profile = "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n\
                      [profile base]\naws_access_key_id = A1\naws_secret_access_key = s\n";
    let by_container = "[default]\nrole_arn = arn:aws:iam::1:role/r\n\
                        credential_source = EcsContainer\n";
    let container = Server::start(vec![endpoint_reply("A2", later(HOUR_MS))]).await;
    for (config, source) in [(by_profile, "A1"), (by_container, "A2")] {
        let sts = Server::start(vec![sts_reply("AssumeRole")]).await;
        let machine = Machine::new(config).await.set("AWS_ENDPOINT_URL_STS", &sts.base);
        let machine = machine.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container.base);
        machine.ask().await.unwrap();
        machine.assert_signed_by(ID, Some(&token()));
        let asked = sts.one();
        let credential = format!("Credential={source}/");
        assert!(asked.header("authorization").contains(&credential), "{asked:?}");
        assert!(form(&asked).contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"), "{asked:?}");
    }
}

#[tokio::test]
async fn an_sso_login_gives_the_keys_of_its_role() {
    let role = json!({ "roleCredentials": {
        "accessKeyId": ID, "secretAccessKey": CANARY, "sessionToken": token(),
        "expiration": later(HOUR_MS).as_millis(),
    } });
    for config in [SSO_SESSION, SSO_LEGACY] {
        let portal = Server::start(vec![json_reply(&role)]).await;
        let machine = logged_in(config, &portal, later(HOUR_MS)).await;
        machine.ask().await.unwrap();
        machine.assert_signed_by(ID, Some(&token()));
        let asked = portal.one();
        assert_eq!(asked.header("x-amz-sso_bearer_token"), format!("login/{CANARY}"));
        assert!(asked.line.contains("role_name=r") && asked.line.contains("account_id=1"));
    }
}

#[tokio::test]
async fn a_web_identity_is_exchanged_for_keys() {
    let variables = "[default]\nregion = eu-west-1\n";
    let profile = "[default]\nrole_arn = arn:aws:iam::1:role/w\nweb_identity_token_file = FILE\n";
    for config in [variables, profile] {
        let sts = Server::start(vec![sts_reply("AssumeRoleWithWebIdentity")]).await;
        let mut machine = Machine::new("").await.set("AWS_ENDPOINT_URL_STS", &sts.base);
        let file = machine.path("identity");
        write(Path::new(&file), &format!("jwt.{CANARY}"));
        write(&machine.home.path().join(".aws/config"), &config.replace("FILE", &file));
        if config == variables {
            machine = machine.set("AWS_WEB_IDENTITY_TOKEN_FILE", &file);
            machine = machine.set("AWS_ROLE_ARN", "arn:aws:iam::1:role/w");
        }
        machine.ask().await.unwrap();
        machine.assert_signed_by(ID, Some(&token()));
        let asked = form(&sts.one());
        assert!(asked.contains(&format!("WebIdentityToken=jwt.{CANARY}")), "{asked}");
        assert!(asked.contains("role%2Fw"), "{asked}");
    }
}

#[tokio::test]
async fn a_program_of_a_profile_gives_keys() {
    let machine = Machine::new("").await;
    let made = json!({
        "Version": 1, "AccessKeyId": ID, "SecretAccessKey": CANARY, "SessionToken": token(),
        "Expiration": later(HOUR_MS).to_string(),
    });
    let script = machine.path("keys.sh");
    write(Path::new(&script), &format!("cat <<END\n{made}\nEND\n"));
    let config = format!("[default]\ncredential_process = sh {script}\n");
    write(&machine.home.path().join(".aws/config"), &config);
    machine.ask().await.unwrap();
    machine.assert_signed_by(ID, Some(&token()));
}

#[tokio::test]
async fn a_container_gives_keys_and_is_not_asked_through_a_proxy() {
    let endpoint = Server::start(vec![endpoint_reply(ID, later(HOUR_MS))]).await;
    let proxy = Server::start(vec![good()]).await;
    let machine = Machine::new("").await.set("HTTP_PROXY", &proxy.base);
    let url = format!("{}/pod?role=1", endpoint.base);
    let machine = machine.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url);
    let file = machine.path("pod-token");
    write(Path::new(&file), &format!("pod/{CANARY}"));
    let mut machine = machine.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file);
    assert_eq!(machine.key_id_at(now()).await.unwrap(), ID);
    let asked = endpoint.one();
    assert_eq!(asked.line, "GET /pod?role=1");
    assert_eq!(asked.header("authorization"), format!("pod/{CANARY}"));
    assert_eq!(proxy.arrived().len(), 0);
    machine.env.remove("HTTP_PROXY");
    machine.ask().await.unwrap();
    machine.assert_signed_by(ID, Some(&token()));
}

#[tokio::test]
async fn an_instance_gives_the_keys_of_its_role() {
    let plain =
        |text: String| Reply::Whole("200 OK\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600", text);
    let metadata = Server::start(vec![
        plain(format!("metadata-{CANARY}")),
        plain("my-role".to_owned()),
        endpoint_reply(ID, later(HOUR_MS)),
    ])
    .await;
    let machine = Machine::new("").await.set("AWS_EC2_METADATA_DISABLED", "false");
    let machine = machine.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.base);
    machine.ask().await.unwrap();
    machine.assert_signed_by(ID, Some(&token()));
    let asked = metadata.arrived();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    let folder = "GET /latest/meta-data/iam/security-credentials/";
    assert_eq!(lines, ["PUT /latest/api/token", folder, &format!("{folder}my-role")]);
    assert_eq!(asked[2].header("x-aws-ec2-metadata-token"), format!("metadata-{CANARY}"));
}
