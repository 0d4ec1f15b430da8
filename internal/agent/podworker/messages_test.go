package podworker

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// However many containers a pod has, their last words fit into its status, and can be written. What others read is not
// changed for that.
func TestLastWordsHaveTheirShare(t *testing.T) {
	said := strings.Repeat("ü", 2048)
	for _, count := range []int{1, 3, 4, 500} {
		read := &corev1.ContainerStateTerminated{Message: said}
		list := make([]corev1.ContainerStatus, count)
		for i := range list {
			list[i].State.Terminated = read
			list[i].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: "short"}
		}
		boundMessages(list[:1], list[1:])
		if read.Message != said {
			t.Errorf("of %d: the state others read was cut to %d bytes", count, len(read.Message))
		}
		total := 0
		for i := range list {
			message := list[i].State.Terminated.Message
			if total += len(message); !utf8.ValidString(message) || list[i].LastTerminationState.Terminated.Message != "short" {
				t.Fatalf("of %d: %q", count, message)
			}
		}
		if total > maxMessages || total < min(count*4096, maxMessages)-2*count {
			t.Errorf("the last words of %d containers have %d bytes", count, total)
		}
	}
}
