package marks

import "testing"

func TestHalf(t *testing.T) {
	if Half(4) == 0 {
		t.Error("half of 4 is 0")
	}
}

func TestTwice(t *testing.T) {
	for _, most := range []int{0, 1} {
		if n, ok := Twice(1, most); n != 1+most || ok != (most == 1) {
			t.Error(n, ok)
		}
	}
}

func TestLabel(t *testing.T) {
	if got := Label(13); got != 8 {
		t.Error(got)
	}
}
