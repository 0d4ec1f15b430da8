package agent

import (
	"strings"
	"testing"
)

func TestReserve(t *testing.T) {
	good := Config{SystemReserved: map[string]string{"cpu": "500m", "memory": "1Gi"}, LogMaxSize: "1Mi", LogMaxFiles: 2}
	must(t, good.completeReserve())
	if cpu, memory := good.reserved.Cpu(), good.reserved.Memory(); good.MaxPods != defaultMaxPods || cpu.MilliValue() != 500 || memory.Value() != 1<<30 || good.logMaxSize != 1<<20 {
		t.Errorf("it became %+v", good)
	}
	for want, c := range map[string]Config{
		"--max-pods -1: a node takes one pod at least":                                           {MaxPods: -1},
		`--system-reserved: of "pods" nothing can be reserved; cpu, memory`:                      {SystemReserved: map[string]string{"pods": "1"}},
		"--system-reserved: cpu=much is not an amount, such as cpu=500m":                         {SystemReserved: map[string]string{"cpu": "much"}},
		"--system-reserved: memory=-1 is not an amount":                                          {SystemReserved: map[string]string{"memory": "-1"}},
		"--container-log-max-size 1k is not a size of 64Ki or more, such as 10Mi":                {LogMaxSize: "1k"},
		"--container-log-max-size big is not a size":                                             {LogMaxSize: "big"},
		"--container-log-max-files: a container has two files of logs at least, the one that is": {LogMaxFiles: 1},
	} {
		if err := c.completeReserve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
