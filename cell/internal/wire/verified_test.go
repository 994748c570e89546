package wire

import (
	"encoding/binary"
	"testing"
)

// A token is known by the secret with which its check digits were right, and by all of
// its bytes; so many are remembered, and no long ones.
func TestVerifiedTokens(t *testing.T) {
	var c verified[int]
	one, other, token := []byte("secret"), []byte("another"), []byte("token")
	if _, ok := c.get(nil, token); ok {
		t.Error("a token is known before it was put")
	}
	c.put(one, token, 7)
	if value, ok := c.get(one, token); !ok || value != 7 {
		t.Errorf("the token says %d (%v), want 7", value, ok)
	}
	if _, ok := c.get(one, []byte("tokem")); ok {
		t.Error("a token with other digits is known")
	}
	if _, ok := c.get(other, token); ok {
		t.Error("the token is known with another secret")
	}
	c.put(other, []byte("its own"), 8)
	if _, ok := c.get(other, token); ok {
		t.Error("a token of another secret is known, after one of this secret was put")
	}
	c.put(one, make([]byte, maxVerifiedSize+1), 9)
	if _, ok := c.get(one, make([]byte, maxVerifiedSize+1)); ok {
		t.Error("a long token is known")
	}
	for n := range uint64(3 * maxVerified) {
		c.put(one, binary.AppendUvarint(nil, n), 1)
		if len(c.values) > maxVerified {
			t.Fatalf("%d tokens are remembered", len(c.values))
		}
	}
}
