package user

import (
	"testing"

	"github.com/chubbylock/chubby/tools/mutants/testdata/marks"
)

func TestHalf(t *testing.T) {
	if got := marks.Half(4); got != 2 {
		t.Error(got)
	}
}

func TestBroken(t *testing.T) {
	if broken() {
		t.Error("it fails with and without a mutant")
	}
}
