package chubbyleader_test

import (
	"os"
	"testing"

	"github.com/chubbylock/chubby/contrib/internal/leaders"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestMain silences the logs of client-go and controller-runtime, or runs a manager for TestProcesses.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	leaders.BeCandidate(startManager)
	os.Exit(m.Run())
}
