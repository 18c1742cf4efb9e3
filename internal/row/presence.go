package row

import (
	"encoding/json"
	"time"
)

// presenceValue is the stored form of a presence. Its names are a contract with other programs.
type presenceValue struct {
	PID           int          `json:"pid"`
	Hostname      string       `json:"hostname"`
	StartedAt     presenceTime `json:"started_at"`
	Version       string       `json:"version"`
	Capabilities  []string     `json:"capabilities"`
	LastHeartbeat presenceTime `json:"last_heartbeat"`
	InFlight      int          `json:"in_flight"`
	Busy          bool         `json:"busy"`
	Paused        bool         `json:"paused"`
}

// presenceTime is a time that is zero if it cannot be decoded.
type presenceTime struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (t *presenceTime) UnmarshalJSON(text []byte) error {
	_ = t.Time.UnmarshalJSON(text)
	return nil
}

// Value returns the stored form of p's fields, except Key, Owner and ExpiresAt, which have columns of their own.
func (p *DispatchPresence) Value() string {
	capabilities := p.Capabilities
	if capabilities == nil {
		capabilities = []string{}
	}
	text, _ := json.Marshal(presenceValue{ // cannot fail
		PID: p.PID, Hostname: p.Hostname, StartedAt: presenceTime{p.StartedAt.UTC()}, Version: p.Version,
		Capabilities: capabilities, LastHeartbeat: presenceTime{p.LastHeartbeat.UTC()},
		InFlight: p.InFlight, Busy: p.Busy, Paused: p.Paused,
	})
	return string(text)
}

// SetValue sets p's fields from their stored form. Another program may have written it, so fields that can't be
// decoded stay zero.
func (p *DispatchPresence) SetValue(value string) {
	var v presenceValue
	_ = json.Unmarshal([]byte(value), &v)
	p.PID, p.Hostname, p.StartedAt, p.Version, p.Capabilities = v.PID, v.Hostname, v.StartedAt.Time, v.Version, v.Capabilities
	p.LastHeartbeat, p.InFlight, p.Busy, p.Paused = v.LastHeartbeat.Time, v.InFlight, v.Busy, v.Paused
}
