package wire

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
)

// A mark says where the next page of a listing begins: after a node, principal or session that the caller may
// have no right to see. So marks are encrypted with the cell's replicated secret, which any later master has.
// All have one length, and each is valid for one caller and one RPC.
//
//	markHead | nonce | AES-256-GCM(length of the place | place | zeros)

// markHead begins every mark. A master of v0.1.0, whose marks are not encrypted, reads it as the place before
// everything: it begins the listing again, and omits nothing.
const markHead = "\x01\x00"

// maxPlace is the maximum length of a place: the part of the listing, the depth, and the name of a node.
const maxPlace = 2 + api.MaxPath

type marks struct {
	secret []byte
	about  []byte // the caller and the RPC
}

func marksOf(ctx context.Context, m *master.Master, op string) marks {
	return marks{secret: m.State().Secret, about: []byte(op + "\x00" + principalOf(ctx))}
}

func (k marks) cipher() (cipher.AEAD, error) {
	key := hmac.New(sha256.New, k.secret)
	key.Write([]byte{pageMark})
	block, err := aes.NewCipher(key.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns the mark of a place; nil for nil, which follows the last page.
func (k marks) seal(place []byte) ([]byte, error) {
	if place == nil {
		return nil, nil
	}
	gcm, err := k.cipher()
	if err != nil {
		return nil, err
	}
	padded := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+maxPlace), uint16(len(place))), place...)
	return gcm.Seal([]byte(markHead), nil, padded[:2+maxPlace], k.about), nil
}

// open returns the place of a mark; nil for an empty mark, which requests the first page.
func (k marks) open(mark []byte) ([]byte, error) {
	if len(mark) == 0 {
		return nil, nil
	}
	gcm, err := k.cipher()
	if err != nil {
		return nil, err
	}
	encrypted, ok := bytes.CutPrefix(mark, []byte(markHead))
	if ok {
		if padded, err := gcm.Open(nil, nil, encrypted, k.about); err == nil && len(padded) == 2+maxPlace {
			return padded[2 : 2+min(binary.BigEndian.Uint16(padded), maxPlace)], nil
		}
	}
	return nil, api.Errorf(api.InvalidArgument, "this cell has not given this caller that mark for this listing, or it was given by an earlier version: begin the listing again, without a mark")
}
