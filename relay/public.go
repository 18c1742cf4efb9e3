package relay

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/honker-go/honker"
)

var publicTransport = sync.OnceValue(func() *http.Transport { return guard(newTransport()) })

// publicVersion returns a copy of a client's transport that dials public addresses only.
func publicVersion(rt http.RoundTripper) (http.RoundTripper, error) {
	t, ok := rt.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("%w: PublicOnly needs a client with an *http.Transport, not a %T", honker.ErrInvalid, rt)
	}
	//lint:ignore SA1019 an old client may have one
	if t.DialTLSContext != nil || t.DialTLS != nil {
		return nil, fmt.Errorf("%w: PublicOnly cannot check the connections of the transport's DialTLS", honker.ErrInvalid)
	}
	return guard(t.Clone()), nil
}

// guard restricts t, which must not have been used yet, to public addresses. The address is checked
// on each dial, after name resolution. Otherwise a name could resolve to a public address for the
// check and to a private address for the connection.
func guard(t *http.Transport) *http.Transport {
	//lint:ignore SA1019 it would be used instead of DialContext
	t.Dial = nil
	t.DialContext = dialer(checkPublic).DialContext
	if len(t.TLSNextProto) > 0 {
		t.TLSNextProto = nil // holds the connections of the original transport
	}
	if proxy := t.Proxy; proxy != nil {
		t.Proxy = func(r *http.Request) (*url.URL, error) { return refuseProxy(proxy(r)) }
	}
	return t
}

func dialer(control func(network, address string, c syscall.RawConn) error) *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: control}
}

// refuseProxy rejects proxies, because a proxy resolves and dials the endpoint itself.
func refuseProxy(proxy *url.URL, err error) (*url.URL, error) {
	if err == nil && proxy != nil {
		return nil, errors.New("PublicOnly cannot check connections through a proxy: the client must not use a proxy for this URL")
	}
	return nil, err
}

func checkPublic(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q refused: %w", address, err)
	}
	if !isPublic(at.Addr()) {
		return fmt.Errorf("address %s refused: it is not public", at.Addr())
	}
	return nil
}

// special4 and special6 hold IANA's special-purpose address registries (RFC 6890) and the multicast
// ranges. All other IPv4 addresses are public. IPv6 addresses are public only within unicast6.
var (
	special4 = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
		"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4")
	special6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
	unicast6 = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96") // the last four bytes are an IPv4 address
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	special := special4
	if a.Is6() {
		if !unicast6.Contains(a) {
			return false
		}
		special = special6
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
