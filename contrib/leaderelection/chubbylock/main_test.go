package chubbylock_test

import (
	"os"
	"testing"

	"github.com/chubbylock/chubby/contrib/internal/leaders"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain silences client-go's log, or runs a candidate for TestProcesses.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	leaders.BeCandidate(lead)
	os.Exit(m.Run())
}
