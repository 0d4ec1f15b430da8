// Package slowstart makes many writes at once without repeating a thousand times
// what fails the first time.
package slowstart

import "sync"

// Do calls f with 0 to n-1: once, then twice at a time, then four times and so on.
// After the first batch with an error it stops: what fails once is likely to fail a
// thousand times.
func Do(n int, f func(i int) error) error {
	for done, batch := 0, 1; done < n; done, batch = done+batch, batch*2 {
		if err := Together(min(batch, n-done), func(i int) error { return f(done + i) }); err != nil {
			return err
		}
	}
	return nil
}

// Together calls f with 0 to n-1, all at once, and returns the first error.
func Together(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	failures := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				failures <- err
			}
		})
	}
	wg.Wait()
	close(failures)
	return <-failures
}
