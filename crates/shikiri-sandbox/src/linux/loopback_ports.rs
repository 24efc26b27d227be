//! The loopback of a new network namespace and its forwarded ports.
//!
//! A run has only its own loopback. For each port of the server's loopback that it may use, a listener
//! is opened inside the namespace before the run starts and sent to the server. The server accepts
//! there and copies bytes to its own port. Nothing else of the machine can be addressed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recv, recvmsg, send, sendmsg, shutdown, socket,
};

/// More than the kernel passes at once cannot be sent in one message; a run has a handful.
const MAX_LISTENERS: usize = 200;
const LOOPBACK_INDEX: i32 = 1;

/// Asks the kernel to set the device `lo` up: one message of rtnetlink(7).
pub(super) fn bring_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    let mut message = Vec::with_capacity(32);
    // struct nlmsghdr: length, type, flags, sequence, port.
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]);
    // struct ifinfomsg: family and type, index, flags, which of them change.
    message.extend([0; 4]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    send(&netlink, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (read, _) = recv(&netlink, &mut answer[..], RecvFlags::empty())?;
    // struct nlmsgerr follows the header: a negated errno, or 0.
    let code = answer[..read].get(16..20).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// Opens each port on all addresses of this namespace and sends the listeners over stdin.
pub(super) fn send_listeners(ports: &[u16]) -> io::Result<()> {
    let listeners = ports.iter().take(MAX_LISTENERS).map(|port| listen(*port));
    let listeners: Vec<TcpListener> = listeners.collect::<io::Result<_>>()?;
    let files: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    let mut space = vec![MaybeUninit::uninit(); control_space()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("too many ports"));
    }
    let stdin = io::stdin();
    sendmsg(&stdin, &[IoSlice::new(b"L")], &mut control, SendFlags::empty())?;
    // The run only reads its input.
    shutdown(&stdin, rustix::net::Shutdown::Write)?;
    Ok(())
}

/// Listens on IPv6, which also accepts IPv4, or else on IPv4.
fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))
}

/// Receives, in the server, the listeners of the supervisor; none if it has ended before.
pub fn receive_listeners(from: impl AsFd) -> io::Result<Vec<TcpListener>> {
    let mut space = vec![MaybeUninit::uninit(); control_space()];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut listeners = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            listeners.extend(files.map(|file: OwnedFd| TcpListener::from(file)));
        }
    }
    Ok(listeners)
}

fn control_space() -> usize {
    rustix::cmsg_space!(ScmRights(MAX_LISTENERS))
}
