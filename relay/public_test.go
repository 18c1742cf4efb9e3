package relay

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPublic_Addresses(t *testing.T) {
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "169.253.0.1", "223.255.255.255",
		"::ffff:8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::808:808",
	} {
		assert.True(t, isPublic(netip.MustParseAddr(text)), text)
	}
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.1.2.3",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.8", "192.0.2.1", "192.88.99.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
		"fec0::1", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1",
	} {
		assert.False(t, isPublic(netip.MustParseAddr(text)), text)
	}
}

func TestPublic_Check_NoAddress(t *testing.T) {
	assert.Error(t, checkPublic("tcp4", "example.com:80", nil))
	assert.Error(t, checkPublic("tcp4", "", nil))
	assert.NoError(t, checkPublic("tcp4", "8.8.8.8:80", nil))
}
