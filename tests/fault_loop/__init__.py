"""Random faults on one results folder, round after round: is anything ever lost?"""
