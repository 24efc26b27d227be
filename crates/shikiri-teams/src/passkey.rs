//! Passkeys. People choose them, so they are hashed slowly, with a salt.

use argon2::{Algorithm, Argon2, Params, Version};
use shikiri_model::key::SecretToken;
use shikiri_runtime::{AppError, random};
use tokio::sync::Semaphore;

/// The first part of a stored passkey: how the rest was made.
const SCHEME: &str = "argon2id-19456-2-1";
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;

/// The stored form of a passkey.
pub(super) async fn hash(passkey: &SecretToken) -> Result<String, AppError> {
    let (passkey, salt) = (passkey.clone(), random::<16>()?);
    let digest = slowly(move || digest(&passkey, &salt)).await?;
    Ok(format!("{SCHEME}${}${}", hex::encode(salt), hex::encode(digest)))
}

/// Whether it is the stored passkey. Without a stored one the check takes as long and fails.
pub(super) async fn verify_passkey(
    passkey: &SecretToken,
    stored: Option<&str>,
) -> Result<bool, AppError> {
    let (salt, expected) = stored.and_then(parts).unwrap_or(([0; 16], [0; 32]));
    let (passkey, is_set) = (passkey.clone(), stored.is_some());
    let digest = slowly(move || digest(&passkey, &salt)).await?;
    let differences = digest.iter().zip(&expected).fold(0, |sum, (a, b)| sum | (a ^ b));
    Ok(is_set && std::hint::black_box(differences) == 0)
}

/// Hashes at once: each takes 19 MiB and a core. The others wait.
static AT_ONCE: Semaphore = Semaphore::const_new(4);

/// Runs on a thread that blocks no other work.
async fn slowly<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppError> + Send + 'static,
) -> Result<T, AppError> {
    let _turn = AT_ONCE.acquire().await;
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(AppError::Broken(format!("hashing broke off: {error}"))))
}

fn digest(passkey: &SecretToken, salt: &[u8]) -> Result<[u8; 32], AppError> {
    let broken = |error| AppError::Broken(format!("a passkey could not be hashed: {error}"));
    let params = Params::new(MEMORY_KIB, PASSES, 1, Some(32)).map_err(broken)?;
    let mut digest = [0; 32];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passkey.reveal().as_bytes(), salt, &mut digest)
        .map_err(broken)?;
    Ok(digest)
}

fn parts(stored: &str) -> Option<([u8; 16], [u8; 32])> {
    let (salt, digest) = stored.strip_prefix(SCHEME)?.strip_prefix('$')?.split_once('$')?;
    Some((unhex(salt)?, unhex(digest)?))
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_right_one_and_only_that_one() {
        let secret = |text: &str| SecretToken::from_caller(text);
        let stored = hash(&secret("合言葉")).await.unwrap();
        assert!(!stored.contains("合言葉"));
        assert_ne!(stored, hash(&secret("合言葉")).await.unwrap());
        assert!(verify_passkey(&secret("合言葉"), Some(&stored)).await.unwrap());
        assert!(!verify_passkey(&secret("合言葉 "), Some(&stored)).await.unwrap());
        assert!(!verify_passkey(&secret(""), None).await.unwrap());
        assert!(!verify_passkey(&secret("x"), Some("of another scheme")).await.unwrap());
    }
}
