"""A ranking model for films with two tasks and shared experts (after MMoE, KDD 2018).

    python examples/python/ranking.py FOLDER [--ratio R] [--epochs N]

FOLDER holds MovieLens' `ratings.csv` and `movies.csv`. From a user, a film and its genres the model
predicts whether the user likes the film (4 stars or more) and how many stars there will be. Every
example is routed once per task, with the task in what the router sees: so each task has a gate of
its own over the same experts. `lrmoe.MoELayer` is taken as it is.
"""

import argparse
import csv
import pathlib
import sys

import lrmoe
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, TASKS = 64, 2


class Ranker(nn.Module):
    def __init__(self, users: int, films: int, genres: int, ratio: float):
        super().__init__()
        self.user = nn.Embedding(users, WIDTH)
        self.film = nn.Embedding(films, WIDTH)
        self.genres = nn.Linear(genres, WIDTH)
        self.task = nn.Embedding(TASKS, WIDTH)
        self.moe = lrmoe.MoELayer(WIDTH, 32, experts=16, top_k=4, ratio=ratio)
        self.towers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)) for _ in range(TASKS)
        )

    def forward(self, user, film, genres):
        x = self.user(user) * self.film(film) + self.film(film) + self.genres(genres)
        x = F.silu(x[:, None] + self.task.weight)  # [examples, tasks, width]
        x = x + self.moe(x)
        like, stars = (tower(x[:, t])[:, 0] for t, tower in enumerate(self.towers))
        return like, stars + 3.5


def numbered(values):
    known = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return torch.tensor([known[value] for value in values]), known


def load(folder: pathlib.Path):
    """Users, films [N], genres of each film, stars [N]."""
    try:
        with open(folder / "ratings.csv", newline="", encoding="utf-8") as file:
            ratings = list(csv.DictReader(file))
        with open(folder / "movies.csv", newline="", encoding="utf-8") as file:
            of_film = {row["movieId"]: row["genres"].split("|") for row in csv.DictReader(file)}
        users, known_users = numbered([row["userId"] for row in ratings])
        films, known_films = numbered([row["movieId"] for row in ratings])
        names = sorted({genre for genres in of_film.values() for genre in genres})
        genres = torch.tensor(
            [[float(name in of_film[film]) for name in names] for film in known_films]
        )
        stars = torch.tensor([float(row["rating"]) for row in ratings])
    except (OSError, KeyError, ValueError) as error:
        print(
            f"ranking: {folder}: needs MovieLens' ratings.csv and movies.csv ({error!r})",
            file=sys.stderr,
        )
        sys.exit(2)
    return users, films, genres, stars, len(known_users)


def area_under_curve(scores, liked):
    """Chance that a liked film scores above another."""
    order = scores.argsort()
    ranks = torch.empty_like(scores, dtype=torch.double)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=torch.double)
    n = liked.sum().double()
    return ((ranks[liked].sum() - n * (n + 1) / 2) / (n * (len(scores) - n))).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ratio", type=float, default=0.25, help="share of the pairs kept")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    users, films, genres, stars, user_count = load(arguments.folder)
    order = torch.randperm(len(stars))
    held, train = order[: len(order) // 10], order[len(order) // 10 :]
    model = Ranker(user_count, len(genres), genres.size(1), arguments.ratio)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)

    for epoch in range(arguments.epochs):
        model.train()
        for batch in train[torch.randperm(len(train))].split(1024):
            like, predicted = model(users[batch], films[batch], genres[films[batch]])
            loss = F.binary_cross_entropy_with_logits(like, (stars[batch] >= 4).float())
            loss = loss + F.mse_loss(predicted, stars[batch]) + 1e-2 * model.moe.aux_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            like, predicted = model(users[held], films[held], genres[films[held]])
        error = (predicted - stars[held]).square().mean().sqrt().item()
        print(
            f"epoch {epoch + 1}: loss {loss.item():.4f}, held out: AUC of likes "
            f"{area_under_curve(like, stars[held] >= 4):.4f}, RMSE of stars {error:.4f}"
        )


if __name__ == "__main__":
    main()
