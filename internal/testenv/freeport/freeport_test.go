package freeport

import (
	"net"
	"strconv"
	"testing"
)

func TestTake(t *testing.T) {
	end, err := ephemeral()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for range 100 {
		port, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < first || port >= end {
			t.Fatalf("got port %d, want a new one below %d", port, end)
		}
		seen[port] = true
	}
}

func TestTakeSkipsWhatIsInUse(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Skipf("another process was faster: %v", err)
	}
	defer l.Close()
	next.Add(^uint32(0)) // the same one would be next
	if again, err := Take(); err != nil || again == port {
		t.Errorf("got port %d (%v), which is in use", again, err)
	}
}
