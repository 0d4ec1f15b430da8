package row

import (
	"testing"
	"time"
)

func TestDefaultLimits(t *testing.T) {
	cfg := Config{}.WithDefaults()
	if cfg.BurstReplicas != 250 || cfg.FailedPodBackoff != time.Second || cfg.MaxFailedPodBackoff != 15*time.Minute {
		t.Errorf("limits are %+v, want 250 creations, and 1s to 15m between failed pods", cfg)
	}
}
