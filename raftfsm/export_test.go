package raftfsm

// DecodeFast reads an entry without entryCodec, as far as that goes.
func DecodeFast(data []byte) (Entry, bool) { return decodeFast(data[1:]) }

// DecodeSlow reads an entry with entryCodec alone.
func DecodeSlow(data []byte) (e Entry, err error) {
	err = entryCodec.dec.Unmarshal(data[1:], &e)
	return e, err
}

// EncodeSlow writes anything with entryCodec alone.
func EncodeSlow(v any) ([]byte, error) { return entryCodec.enc.Marshal(v) }
