package bounded

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBody(t *testing.T) {
	for _, c := range []struct {
		size int
		ok   bool
	}{{0, true}, {9, true}, {10, true}, {11, false}, {1000, false}} {
		text := strings.Repeat("x", c.size)
		for name, from := range map[string]io.Reader{"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			body := Body(io.NopCloser(from), 10)
			got, err := io.ReadAll(body)
			if (err == nil) != c.ok || c.ok && string(got) != text || len(got) > 10 {
				t.Errorf("%d bytes %s: got %d, %v", c.size, name, len(got), err)
			}
			if !c.ok {
				if n, again := body.Read(make([]byte, 1)); n != 0 || again == nil || again.Error() != err.Error() {
					t.Errorf("%d bytes %s: after the error %d, %v", c.size, name, n, again)
				}
			}
		}
	}
}
