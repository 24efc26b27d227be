use super::*;

const HOST: (&str, &str) = ("host", "example.amazonaws.com");
const DATE: (&str, &str) = ("x-amz-date", "20150830T123600Z");

fn keys(session_token: Option<&str>) -> AwsKeys {
    AwsKeys {
        id: "AKIDEXAMPLE".to_owned(),
        secret: SecretToken::from_caller("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        session_token: session_token.map(SecretToken::from_caller),
    }
}

/// A request of the time and place that AWS's examples have.
fn unsigned<'a>(
    method: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
) -> SignatureInput<'a> {
    SignatureInput {
        method,
        path: "/",
        query: "",
        headers,
        body,
        region: "us-east-1",
        service: "service",
        at: "2015-08-30T12:36:00.789Z".parse().unwrap(),
    }
}

fn signature(unsigned: &SignatureInput<'_>) -> String {
    let value = unsigned.authorization(&keys(None));
    value.rsplit('=').next().unwrap().to_owned()
}

/// The names are those of AWS's published test suite for Signature Version 4.
#[test]
fn aws_examples_get_the_signatures_that_aws_gives_them() {
    let get_vanilla = unsigned("GET", &[HOST, DATE], b"");
    assert_eq!(
        get_vanilla.authorization(&keys(None)),
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
         SignedHeaders=host;x-amz-date, \
         Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    );
    let post_vanilla = unsigned("POST", &[HOST, DATE], b"");
    let known = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
    assert_eq!(signature(&post_vanilla), known);
    let form = [("content-type", "application/x-www-form-urlencoded"), HOST, DATE];
    let post_x_www_form_urlencoded = unsigned("POST", &form, b"Param1=value1");
    let known = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
    assert_eq!(signature(&post_x_www_form_urlencoded), known);
}

/// AWS's examples have no path with an escaped colon, as the names of models on Bedrock do. These
/// signatures are botocore's (1.43.11).
#[test]
fn paths_are_encoded_once_more_than_they_are_sent() {
    let of = |model: &str, token: Option<&str>| {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("host", "bedrock-runtime.us-west-2.amazonaws.com"),
            DATE,
        ];
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let path = format!("/model/{}/invoke", encoded(model));
        let (region, service) = ("us-west-2", "bedrock");
        let plain = unsigned("POST", &headers, b"{\"max_tokens\":1}");
        signature(&SignatureInput { path: &path, region, service, ..plain })
    };
    assert_eq!(
        of("anthropic.claude-3-haiku-20240307-v1:0", None),
        "705aa805bd042323e915fd45d3faa2ba2e41956b5261c26b37f35622f8c04f02"
    );
    let profile = "arn:aws:bedrock:us-west-2:123456789012:inference-profile/\
                   us.anthropic.claude-haiku-4-5-20251001-v1:0";
    assert_eq!(
        of(profile, Some("SESSION/TOKEN==")),
        "c63338a4772bae89073dc80131fd8013fbe6a9f0472d261664b6118cc1bb8f81"
    );
}

#[test]
fn keys_are_not_printed() {
    let printed = format!("{:?}", keys(Some("SESSION-TOKEN")));
    assert!(!printed.contains("wJalrX") && !printed.contains("SESSION-TOKEN"), "{printed}");
}
