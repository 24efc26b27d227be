//! Our side as a client, against servers of ours and of others.

mod conformance;
