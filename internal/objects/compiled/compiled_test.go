package compiled

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTheSameIsCompiledOnce(t *testing.T) {
	var n atomic.Int32
	c := New[string, string](3)
	get := func(k string) (string, error) {
		return c.Get(k, func() (string, error) { n.Add(1); return k + "!", nil })
	}
	for range 5 {
		for _, k := range []string{"a", "b", "c"} {
			if got, err := get(k); got != k+"!" || err != nil {
				t.Fatalf("%s gave %q, %v", k, got, err)
			}
		}
	}
	if n.Load() != 3 {
		t.Errorf("three texts were compiled %d times", n.Load())
	}
	for i := range 1000 {
		_, _ = get(fmt.Sprint(i))
	}
	if c.known.Len() != 3 {
		t.Errorf("%d results are kept, of at most 3", c.known.Len())
	}
}

func TestWhatFailsIsNotKept(t *testing.T) {
	n := 0
	c := New[string, int](3)
	compile := func() (int, error) {
		if n++; n == 1 {
			return 0, errors.New("no")
		}
		return n, nil
	}
	if _, err := c.Get("a", compile); err == nil {
		t.Fatal("the error is lost")
	}
	if c.known.Len() != 0 {
		t.Error("a failure is kept")
	}
	if got, err := c.Get("a", compile); got != 2 || err != nil {
		t.Errorf("the second attempt gave %d, %v", got, err)
	}
}

func TestManyAtOnceCompileOnce(t *testing.T) {
	var n atomic.Int32
	started, goOn := make(chan struct{}), make(chan struct{})
	c := New[string, int](3)
	compile := func() (int, error) {
		n.Add(1)
		close(started)
		<-goOn
		return 7, nil
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, err := c.Get("a", compile); got != 7 || err != nil {
				t.Errorf("gave %d, %v", got, err)
			}
		})
	}
	<-started
	close(goOn)
	all.Wait()
	if n.Load() != 1 {
		t.Errorf("compiled %d times", n.Load())
	}
}
