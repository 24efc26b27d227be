//! Finds the user whose process listens at a local port, on systems with `/proc`.

/// The user id of a port's listener, if it is known.
pub(super) fn listener(port: u16) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .find_map(|table| find(&table, port))
}

/// Lines are: number, local address and port in hexadecimal, remote, state (0A listens), queues,
/// timer, retries, user.
fn find(table: &str, port: u16) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local, 16) == Ok(port) && fields.get(3) == Some(&"0A");
        is_it.then(|| fields.get(7)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
            0: 0100007F:1F90 00000000:0000 01 00000000:00000000 00:00000000 00000000  7 0 1\n\
            1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 1\n";
        assert_eq!(find(table, 8080), Some(1_000));
        assert_eq!(find(table, 8081), None);
        assert_eq!(find("", 8080), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_listener_of_this_process_has_its_user() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(listener(port), Some(rustix::process::geteuid().as_raw()));
    }
}
