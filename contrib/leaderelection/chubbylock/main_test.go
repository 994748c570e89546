package chubbylock_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain keeps client-go quiet, or is a candidate that is to be killed.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	if task := os.Getenv(candidateTask); task != "" {
		os.Exit(beCandidate(task))
	}
	os.Exit(m.Run())
}
