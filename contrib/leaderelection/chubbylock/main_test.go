package chubbylock_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain silences client-go's log, or runs a candidate for TestProcesses.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	if task := os.Getenv(candidateTask); task != "" {
		os.Exit(beCandidate(task))
	}
	os.Exit(m.Run())
}
