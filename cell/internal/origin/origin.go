package origin

import (
	"net"
	"net/netip"
)

// Of returns what the addresses of one place have in common: the IP address, of
// IPv6 the network of 64 bits, which one machine may have to itself.
func Of(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return address
		}
		return host
	}
	ip := at.Addr().Unmap()
	if ip.Is4() || ip.IsLoopback() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return network.String()
}
