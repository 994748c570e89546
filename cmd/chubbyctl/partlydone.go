package main

// partlyDone is the error of a step before which others were done: not everything is as it was, also if the step itself changed nothing.
type partlyDone struct{ error }

func (p partlyDone) Unwrap() error { return p.error }

// afterSteps returns the error of a step. done says whether steps before it may have changed something.
func afterSteps(done bool, err error) error {
	if err == nil || !done {
		return err
	}
	return partlyDone{err}
}
