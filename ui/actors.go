package ui

import (
	"context"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type actorsPageData struct {
	Types  []admin.ActorInfo
	Actors []actorRow
	Total  int    // live actors, of Type if it is set
	Type   string // only actors of this type are shown; "" for all
}

// actorRow is a live actor with its workers that hold jobs.
type actorRow struct {
	admin.PresenceInfo
	Workers []admin.WorkerInfo
}

// actorsPerPage is the maximum number of types and of actors on the page.
const actorsPerPage = 200

func actorsPage(c *call) serve {
	only := c.params.text("type", maxName)
	return func() error {
		types, err := admin.Actors(c.ctx, c.db)
		if err != nil {
			return err
		}
		d := &actorsPageData{Types: types[:min(len(types), actorsPerPage)], Type: only}
		v := view{name: "actors", nav: "actors", title: "Actors", data: d}
		live, err := admin.Presences(c.ctx, c.db)
		if err != nil {
			return err
		}
		workers, err := admin.Workers(c.ctx, c.db)
		if err != nil {
			return err
		}
		for _, p := range live {
			if only != "" && p.Type != only {
				continue
			}
			if d.Total++; d.Total <= actorsPerPage {
				d.Actors = append(d.Actors, actorRow{p, holding(p, workers)})
				v.next = sooner(v.next, p.ExpiresAt)
			}
		}
		return c.show(v)
	}
}

// holding returns the actor's workers that hold jobs.
func holding(p admin.PresenceInfo, all []admin.WorkerInfo) (found []admin.WorkerInfo) {
	for _, w := range all {
		if w.Running > 0 && p.Runs(w) {
			found = append(found, w)
		}
	}
	return found
}

// commandActor serves a command to a single actor.
func (c *call) commandActor(command func(context.Context, *honker.DB, admin.ActorTarget) (int, error)) (back string, change func() (bool, error)) {
	p := c.params
	t := admin.ActorTarget{Prefix: p.text("prefix", maxName), Type: p.name("type"), Group: p.name("group"), Instance: p.name("instance")}
	return c.back(), func() (bool, error) {
		told, err := command(c.ctx, c.db, t)
		return told > 0, err
	}
}

func pauseActorAction(c *call) serve  { return c.changes(c.commandActor(admin.PauseActors)) }
func resumeActorAction(c *call) serve { return c.changes(c.commandActor(admin.ResumeActors)) }

func stopActorAction(c *call) serve {
	back, change := c.commandActor(admin.StopActors)
	return c.asks("Stop the actor "+quoted(c.params.one("instance")), "It claims no more jobs, finishes its tasks and ends. Its supervisor may start it again.", "Stop", back, change)
}

func breakPresenceAction(c *call) serve {
	key, owner, back := c.params.name("key"), c.params.name("owner"), c.back()
	return c.asks("Free the name "+quoted(key), "Free a name only if its actor is gone. A live actor takes its name back at its next heartbeat, or ends if another actor has taken it.", "Free",
		back, func() (bool, error) { return admin.BreakPresence(c.ctx, c.db, key, owner) })
}
